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

// connect reads the broker's credentials from their files and connects. Each reconnect reads
// the files again: a rotated password is written to the file first, and then the broker
// closes the connections that use the old one.
func (b *BrokerConfig) connect(ctx context.Context, name string) (broker.Engine, error) {
	now := func() (engines.Access, error) {
		access, err := b.readCredentials()
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

func (b *BrokerConfig) readCredentials() (engines.Access, error) {
	var files fileReader
	access := engines.Access{Access: source.Access{
		URL:      b.URL,
		Username: files.readLogin("usernameFile", b.UsernameFile),
		Password: files.readLogin("passwordFile", b.PasswordFile),
		Token:    files.readLogin("tokenFile", b.TokenFile),
	}, Credentials: files.read(b.CredentialsFile)}
	if b.URLFile != "" {
		access.URL = strings.TrimSpace(string(files.read(b.URLFile)))
	}
	if b.TLS != (TLSConfig{}) {
		access.TLS = &source.TLS{
			CA: files.read(b.TLS.CAFile), Certificate: files.read(b.TLS.CertificateFile), Key: files.read(b.TLS.KeyFile), ServerName: b.TLS.ServerName,
		}
	}
	if files.err != nil {
		return engines.Access{}, broker.Errorf(broker.ClassInvalid, "reading the broker credentials: %w", files.err)
	}
	return access, nil
}

// fileReader reads files until the first error.
type fileReader struct{ err error }

func (f *fileReader) read(path string) []byte {
	if path == "" || f.err != nil {
		return nil
	}
	var raw []byte
	raw, f.err = os.ReadFile(path)
	return raw
}

// readLogin reads a file that the named field refers to. An empty file is an error: the
// worker would otherwise log in anonymously, and the broker's error would not show why.
func (f *fileReader) readLogin(field, path string) string {
	text := strings.TrimRight(string(f.read(path)), "\r\n")
	if path != "" && text == "" && f.err == nil {
		f.err = fmt.Errorf("broker.%s: %s is empty", field, path)
	}
	return text
}
