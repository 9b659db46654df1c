package worker

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/internal/backlog/source"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/engines"
)

// connect reads the broker's secrets and connects once. They are read again for each
// connection that is made anew: who changes a password changes the files, and then has the
// broker refuse the old one.
func (b *Broker) connect(ctx context.Context, name string) (broker.Engine, error) {
	now := func() (engines.Access, error) {
		access, err := b.access()
		access.Name = name
		return access, err
	}
	access, err := now()
	if err != nil {
		return nil, err
	}
	access.Now = now
	return engines.Connect(ctx, access)
}

// access is what the broker's files say.
func (b *Broker) access() (engines.Access, error) {
	var f files
	access := engines.Access{Access: source.Access{
		URL:      b.URL,
		Username: f.line("usernameFile", b.UsernameFile),
		Password: f.line("passwordFile", b.PasswordFile),
		Token:    f.line("tokenFile", b.TokenFile),
	}, Credentials: f.read(b.CredentialsFile)}
	if b.URLFile != "" {
		access.URL = strings.TrimSpace(string(f.read(b.URLFile)))
	}
	if b.TLS != (TLS{}) {
		access.TLS = &source.TLS{
			CA: f.read(b.TLS.CAFile), Certificate: f.read(b.TLS.CertificateFile), Key: f.read(b.TLS.KeyFile), ServerName: b.TLS.ServerName,
		}
	}
	if f.err != nil {
		return engines.Access{}, broker.Errorf(broker.ClassInvalid, "reading what the broker needs: %w", f.err)
	}
	return access, nil
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
