// Package login connects to a broker with credentials that files contain, as in the Pods of workers and producers.
package login

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// Files defines how to connect to a broker. Paths are empty if there is no such file.
type Files struct {
	// URL of the broker, or URLFile, which contains it.
	URL, URLFile string
	// UsernameFile and PasswordFile, TokenFile, CredentialsFile (of NATS) or NKeyFile contain the login.
	UsernameFile, PasswordFile, TokenFile, CredentialsFile, NKeyFile string
	// JetStreamDomain and InboxPrefix are settings of NATS.
	JetStreamDomain, InboxPrefix string
	// SentinelMaster is the name of the server that Redis Sentinels monitor; the files contain the login there.
	SentinelMaster, SentinelUsernameFile, SentinelPasswordFile string
	// CAFile, CertificateFile, KeyFile and ServerName are the settings of TLS.
	CAFile, CertificateFile, KeyFile, ServerName string
}

// Validate returns an error that names every conflict between fields.
func (f *Files) Validate() error {
	var errs []error
	if (f.URL == "") == (f.URLFile == "") {
		errs = append(errs, errors.New("broker must have exactly one of url and urlFile"))
	}
	logins := 0
	for _, path := range []string{f.UsernameFile, f.TokenFile, f.CredentialsFile, f.NKeyFile} {
		if path != "" {
			logins++
		}
	}
	if logins > 1 {
		errs = append(errs, errors.New("broker must have at most one of usernameFile, tokenFile, credentialsFile and nkeyFile"))
	}
	if f.PasswordFile != "" && f.UsernameFile == "" {
		errs = append(errs, errors.New("broker has passwordFile, which requires usernameFile"))
	}
	if (f.SentinelUsernameFile == "") != (f.SentinelPasswordFile == "") || f.SentinelUsernameFile != "" && f.SentinelMaster == "" {
		errs = append(errs, errors.New("broker.sentinel must have masterName, and both or none of usernameFile and passwordFile"))
	}
	return errors.Join(errs...)
}

// Connect reads the credentials and connects. Each reconnect reads the files again: to rotate a password, change
// the file first and then the broker. The name identifies the connection at the broker.
func (f *Files) Connect(ctx context.Context, name string) (broker.Engine, dial.EngineName, error) {
	refresh := func() (broker.Credentials, error) { return f.read(name) }
	credentials, err := refresh()
	if err != nil {
		return nil, "", err
	}
	credentials.Refresh = refresh
	engineName := dial.EngineOf(credentials.URL)
	engine, err := dial.Connect(ctx, engineName, credentials)
	return engine, engineName, err
}

func (f *Files) read(name string) (broker.Credentials, error) {
	var files reader
	credentials := broker.Credentials{
		URL:             f.URL,
		Username:        files.readLogin("usernameFile", f.UsernameFile),
		Password:        files.readLogin("passwordFile", f.PasswordFile),
		Token:           files.readLogin("tokenFile", f.TokenFile),
		NATSCredentials: files.readFile(f.CredentialsFile),
		NKeySeed:        []byte(files.readLogin("nkeyFile", f.NKeyFile)),
		JetStreamDomain: f.JetStreamDomain,
		InboxPrefix:     f.InboxPrefix,
		TLS:             broker.NewTLS(files.readFile(f.CAFile), files.readFile(f.CertificateFile), files.readFile(f.KeyFile), f.ServerName),
		Name:            name,
	}
	if f.SentinelMaster != "" {
		credentials.Sentinel = &broker.Sentinel{
			MasterName: f.SentinelMaster,
			Username:   files.readLogin("sentinel.usernameFile", f.SentinelUsernameFile),
			Password:   files.readLogin("sentinel.passwordFile", f.SentinelPasswordFile),
		}
	}
	if f.URLFile != "" {
		credentials.URL = strings.TrimSpace(string(files.readFile(f.URLFile)))
	}
	if files.err != nil {
		return broker.Credentials{}, broker.Errorf(broker.ClassInvalid, "reading the broker credentials: %w", files.err)
	}
	return credentials, nil
}

// reader reads files until the first error.
type reader struct{ err error }

func (r *reader) readFile(path string) []byte {
	if path == "" || r.err != nil {
		return nil
	}
	var raw []byte
	raw, r.err = os.ReadFile(path)
	return raw
}

// readLogin reads a file that the named field refers to. An empty file is an error: the client would otherwise
// log in anonymously, and the broker's error would not show why.
func (r *reader) readLogin(field, path string) string {
	text := strings.TrimRight(string(r.readFile(path)), "\r\n")
	if path != "" && text == "" && r.err == nil {
		r.err = fmt.Errorf("broker.%s: %s is empty", field, path)
	}
	return text
}
