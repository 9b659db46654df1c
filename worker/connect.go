package worker

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// connect reads the broker's secrets and connects once. Each later connection reads them
// again: to rotate a password, change the files first, then the broker.
func (b *Broker) connect(ctx context.Context, name string) (broker.Engine, error) {
	refresh := func() (broker.Credentials, error) { return b.credentials(name) }
	credentials, err := refresh()
	if err != nil {
		return nil, err
	}
	credentials.Refresh = refresh
	return dial.Connect(ctx, dial.EngineOf(credentials.URL), credentials)
}

// credentials returns the current content of the broker's files.
func (b *Broker) credentials(name string) (broker.Credentials, error) {
	var f files
	credentials := broker.Credentials{
		URL:             b.URL,
		Username:        f.line("usernameFile", b.UsernameFile),
		Password:        f.line("passwordFile", b.PasswordFile),
		Token:           f.line("tokenFile", b.TokenFile),
		NATSCredentials: f.read(b.CredentialsFile),
		TLS:             broker.NewTLS(f.read(b.TLS.CAFile), f.read(b.TLS.CertificateFile), f.read(b.TLS.KeyFile), b.TLS.ServerName),
		Name:            name,
	}
	if b.URLFile != "" {
		credentials.URL = strings.TrimSpace(string(f.read(b.URLFile)))
	}
	if f.err != nil {
		return broker.Credentials{}, broker.Errorf(broker.ClassInvalid, "reading what the broker needs: %w", f.err)
	}
	return credentials, nil
}

// files are read until one cannot be.
type files struct{ err error }

func (f *files) read(path string) []byte {
	if path == "" || f.err != nil {
		return nil
	}
	var raw []byte
	raw, f.err = os.ReadFile(path)
	return raw
}

// line is what stands in the file that a field names, if it does. Without a name or a token
// in it the worker would log in as nobody, and hear no more than that it may not.
func (f *files) line(field, path string) string {
	text := strings.TrimRight(string(f.read(path)), "\r\n")
	if path != "" && text == "" && f.err == nil {
		f.err = fmt.Errorf("broker.%s: %s is empty", field, path)
	}
	return text
}
