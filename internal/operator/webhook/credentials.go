package webhook

import (
	"bytes"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The files of the certificate directory.
const (
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	// PathFile has the accepted path segments, separated by spaces. Each request must begin with one of them.
	PathFile = "path"
)

const reloadInterval = time.Second

// credentials prove the server's identity, and verify the identity of callers.
type credentials struct {
	tls *tls.Config
	// segments are the accepted first segments of a path. If empty, paths are fixed.
	segments []string
}

// route returns the path without the secret segment, and whether the segment is valid.
func (c *credentials) route(path string) (rest string, valid bool) {
	if len(c.segments) == 0 {
		return path, true
	}
	segment, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	matches := 0
	for _, accepted := range c.segments {
		matches |= subtle.ConstantTimeCompare([]byte(segment), []byte(accepted))
	}
	return "/" + rest, matches == 1
}

// credentialFiles read credentials from files, at most once per reloadInterval.
type credentialFiles struct {
	directory    string
	clientCA     string
	pathOptional bool

	mu       sync.Mutex
	readTime time.Time
	content  [][]byte
	loaded   *credentials
	failure  string
}

// current returns the newest valid credentials. It fails only if there have never been any: files that become invalid later are
// logged, and the previous credentials remain in use.
func (f *credentialFiles) current() (*credentials, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded != nil && time.Since(f.readTime) < reloadInterval {
		return f.loaded, nil
	}
	f.readTime = time.Now()
	err := f.load()
	if f.loaded == nil {
		return nil, err
	}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != f.failure && err != nil {
		log.Error(err, "The webhook's new certificate is not used", "directory", f.directory)
	}
	f.failure = failure
	return f.loaded, nil
}

func (f *credentialFiles) load() error {
	content, err := f.readFiles()
	if err != nil {
		return err
	}
	if f.loaded != nil && slices.EqualFunc(content, f.content, bytes.Equal) {
		return nil
	}
	loaded, err := parseCredentials(content[0], content[1], content[2], content[3])
	if err != nil {
		return err
	}
	f.loaded, f.content = loaded, content
	return nil
}

// readFiles returns the certificate, the key, the path segments and the client CA. The last two are nil if they are not configured.
func (f *credentialFiles) readFiles() ([][]byte, error) {
	content := make([][]byte, 0, 4)
	for _, name := range []string{CertFile, KeyFile, PathFile} {
		file, err := os.ReadFile(filepath.Join(f.directory, name))
		if err != nil && (name != PathFile || !f.pathOptional || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		content = append(content, file)
	}
	if f.clientCA == "" {
		return append(content, nil), nil
	}
	authorities, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, err
	}
	return append(content, authorities), nil
}

// parseCredentials refuses empty files, which could admit every caller.
func parseCredentials(certificate, key, path, clientCA []byte) (*credentials, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config := newTLSConfig()
	config.Certificates = []tls.Certificate{pair}
	if clientCA != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(clientCA) {
			return nil, errors.New("the file of client certificate authorities contains no certificate")
		}
	}
	segments := strings.Fields(string(path))
	if path != nil && len(segments) == 0 {
		return nil, fmt.Errorf("the file %s is empty", PathFile)
	}
	return &credentials{tls: config, segments: segments}, nil
}

// tlsConfig uses the current credentials for each connection.
func (f *credentialFiles) tlsConfig() *tls.Config {
	config := newTLSConfig()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := f.current()
		if err != nil {
			return nil, err
		}
		return c.tls, nil
	}
	return config
}

func newTLSConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}
