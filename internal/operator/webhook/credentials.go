package webhook

import (
	"bytes"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/internal/operator/ca"
)

// The files of the certificate directory. Instead of a certificate, it may have an authority, with the files of package ca.
const (
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	// PathFile has the accepted path segments, separated by spaces. Each request must begin with one of them.
	PathFile = "path"
)

// clientCAFile stands for the file of client certificate authorities, which has any path.
const clientCAFile = "client-ca"

var certificateExpiry = metric.NewGauge("yardmaster_webhook_certificate_expiry_timestamp_seconds",
	"When the certificate authority of the webhooks has to have been replaced or, without one, when the certificate that somebody else issues expires.")

const reloadInterval = time.Second

// credentials prove the server's identity, and verify the identity of callers.
type credentials struct {
	tls *tls.Config
	// segments are the accepted first segments of a path. If empty, paths are fixed.
	segments []string
	// renew is when another certificate has to be issued; zero for a certificate that somebody else issues.
	renew time.Time
	// expires is when somebody has to have replaced the files.
	expires time.Time
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
	directory string
	clientCA  string
	// hosts are the DNS names of the certificates that an authority in the directory issues.
	hosts []string

	mu       sync.Mutex
	readTime time.Time
	content  map[string][]byte
	loaded   *credentials
	failure  string
}

// current returns the newest valid credentials. It fails only if there have never been any: files that become invalid later are
// logged, and the previous credentials remain in use.
func (f *credentialFiles) current(now time.Time) (*credentials, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded != nil && now.Sub(f.readTime) < reloadInterval {
		return f.loaded, nil
	}
	f.readTime = now
	err := f.load(now)
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

func (f *credentialFiles) load(now time.Time) error {
	content, err := f.readFiles()
	if err != nil {
		return err
	}
	if f.loaded != nil && maps.EqualFunc(content, f.content, bytes.Equal) && (f.loaded.renew.IsZero() || now.Before(f.loaded.renew)) {
		return nil
	}
	loaded, err := newCredentials(content, f.hosts, now)
	if err != nil {
		return err
	}
	f.loaded, f.content = loaded, content
	certificateExpiry.Set(float64(loaded.expires.Unix()))
	return nil
}

// readFiles returns the content of the files that exist.
func (f *credentialFiles) readFiles() (map[string][]byte, error) {
	content := map[string][]byte{}
	for _, name := range []string{CertFile, KeyFile, ca.CertFile, ca.KeyFile, PathFile} {
		file, err := os.ReadFile(filepath.Join(f.directory, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		content[name] = file
	}
	if f.clientCA == "" {
		return content, nil
	}
	authorities, err := os.ReadFile(f.clientCA)
	content[clientCAFile] = authorities
	return content, err
}

// newCredentials refuses empty files, which could admit every caller.
func newCredentials(content map[string][]byte, hosts []string, now time.Time) (*credentials, error) {
	c := &credentials{tls: newTLSConfig()}
	if err := c.setCertificate(content, hosts, now); err != nil {
		return nil, err
	}
	if authorities, given := content[clientCAFile]; given {
		c.tls.ClientAuth, c.tls.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !c.tls.ClientCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("the file of client certificate authorities contains no certificate")
		}
	}
	path, given := content[PathFile]
	c.segments = strings.Fields(string(path))
	// Who issues certificates elsewhere may leave out the path, but it always belongs to the authority.
	if _, issued := content[ca.KeyFile]; (given || issued) && len(c.segments) == 0 {
		return nil, fmt.Errorf("the file %s is missing or empty", PathFile)
	}
	return c, nil
}

// setCertificate sets the certificate: of the authority in the directory or, without one, the given certificate.
func (c *credentials) setCertificate(content map[string][]byte, hosts []string, now time.Time) error {
	if key, given := content[ca.KeyFile]; given {
		issued, err := ca.Issue(content[ca.CertFile], key, hosts, now)
		if err != nil {
			return err
		}
		c.tls.Certificates, c.renew, c.expires = []tls.Certificate{issued.Certificate}, issued.Renew, issued.AuthorityExpires
		return nil
	}
	if content[CertFile] == nil || content[KeyFile] == nil {
		return fmt.Errorf("there is neither a certificate authority, %s and %s, nor a certificate, %s and %s", ca.CertFile, ca.KeyFile, CertFile, KeyFile)
	}
	pair, err := tls.X509KeyPair(content[CertFile], content[KeyFile])
	if err != nil {
		return err
	}
	c.tls.Certificates, c.expires = []tls.Certificate{pair}, pair.Leaf.NotAfter
	return nil
}

// tlsConfig uses the current credentials for each connection.
func (f *credentialFiles) tlsConfig() *tls.Config {
	config := newTLSConfig()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := f.current(time.Now())
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
