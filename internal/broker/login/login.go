// Package login connects to a broker with credentials in files, as in the Pods of workers and producers.
package login

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/connection"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// Validate returns an error that names every conflict between fields.
func Validate(c *connection.Config) error {
	var errs []error
	if (c.URL == "") == (c.URLFile == "") {
		errs = append(errs, errors.New("broker must have exactly one of url and urlFile"))
	}
	logins := 0
	for _, path := range []string{c.UsernameFile, c.TokenFile, c.CredentialsFile, c.NKeyFile} {
		if path != "" {
			logins++
		}
	}
	if logins > 1 {
		errs = append(errs, errors.New("broker must have at most one of usernameFile, tokenFile, credentialsFile and nkeyFile"))
	}
	if c.PasswordFile != "" && c.UsernameFile == "" {
		errs = append(errs, errors.New("broker has passwordFile, which requires usernameFile"))
	}
	if (c.Sentinel.UsernameFile == "") != (c.Sentinel.PasswordFile == "") || c.Sentinel.UsernameFile != "" && c.Sentinel.MasterName == "" {
		errs = append(errs, errors.New("broker.sentinel must have masterName, and both or none of usernameFile and passwordFile"))
	}
	return errors.Join(errs...)
}

// Connect reads the credentials and connects. Each reconnect reads the files again: to rotate a password, change first the file and then
// the broker. The name identifies the connection at the broker.
func Connect(ctx context.Context, c *connection.Config, name string) (broker.Engine, dial.EngineName, error) {
	refresh := func() (broker.Credentials, error) { return read(c, name) }
	credentials, err := refresh()
	if err != nil {
		return nil, "", err
	}
	credentials.Refresh = refresh
	engineName := dial.EngineOf(credentials.URL)
	engine, err := dial.Connect(ctx, engineName, credentials)
	return engine, engineName, err
}

func read(c *connection.Config, name string) (broker.Credentials, error) {
	var files reader
	credentials := broker.Credentials{
		URL:             c.URL,
		Username:        files.readLogin("usernameFile", c.UsernameFile),
		Password:        files.readLogin("passwordFile", c.PasswordFile),
		Token:           files.readLogin("tokenFile", c.TokenFile),
		NATSCredentials: files.readFile(c.CredentialsFile),
		NKeySeed:        []byte(files.readLogin("nkeyFile", c.NKeyFile)),
		JetStreamDomain: c.JetStreamDomain,
		InboxPrefix:     c.InboxPrefix,
		TLS:             broker.NewTLS(files.readFile(c.TLS.CAFile), files.readFile(c.TLS.CertificateFile), files.readFile(c.TLS.KeyFile), c.TLS.ServerName),
		Name:            name,
	}
	if c.Sentinel.MasterName != "" {
		credentials.Sentinel = &broker.Sentinel{
			MasterName: c.Sentinel.MasterName,
			Username:   files.readLogin("sentinel.usernameFile", c.Sentinel.UsernameFile),
			Password:   files.readLogin("sentinel.passwordFile", c.Sentinel.PasswordFile),
		}
	}
	if c.URLFile != "" {
		credentials.URL = strings.TrimSpace(string(files.readFile(c.URLFile)))
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

// readLogin reads the file of a field. An empty file is an error, because the client would otherwise log in anonymously, and the broker's
// error would not show why.
func (r *reader) readLogin(field, path string) string {
	text := strings.TrimRight(string(r.readFile(path)), "\r\n")
	if path != "" && text == "" && r.err == nil {
		r.err = fmt.Errorf("broker.%s: %s is empty", field, path)
	}
	return text
}
