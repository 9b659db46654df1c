package worker

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// connectEngine reads the broker's credentials from their files and connects. Each reconnect reads
// the files again: to rotate a password, change the file first and then the broker.
func (b *BrokerConfig) connectEngine(ctx context.Context, name string) (broker.Engine, dial.EngineName, error) {
	refresh := func() (broker.Credentials, error) { return b.readCredentials(name) }
	credentials, err := refresh()
	if err != nil {
		return nil, "", err
	}
	credentials.Refresh = refresh
	engineName := dial.EngineOf(credentials.URL)
	engine, err := dial.Connect(ctx, engineName, credentials)
	return engine, engineName, err
}

func (b *BrokerConfig) readCredentials(name string) (broker.Credentials, error) {
	var files credentialReader
	credentials := broker.Credentials{
		URL:             b.URL,
		Username:        files.readLogin("usernameFile", b.UsernameFile),
		Password:        files.readLogin("passwordFile", b.PasswordFile),
		Token:           files.readLogin("tokenFile", b.TokenFile),
		NATSCredentials: files.readFile(b.CredentialsFile),
		NKeySeed:        []byte(files.readLogin("nkeyFile", b.NKeyFile)),
		JetStreamDomain: b.JetStreamDomain,
		InboxPrefix:     b.InboxPrefix,
		TLS:             broker.NewTLS(files.readFile(b.TLS.CAFile), files.readFile(b.TLS.CertificateFile), files.readFile(b.TLS.KeyFile), b.TLS.ServerName),
		Name:            name,
	}
	if s := b.Sentinel; s.MasterName != "" {
		credentials.Sentinel = &broker.Sentinel{
			MasterName: s.MasterName,
			Username:   files.readLogin("sentinel.usernameFile", s.UsernameFile),
			Password:   files.readLogin("sentinel.passwordFile", s.PasswordFile),
		}
	}
	if b.URLFile != "" {
		credentials.URL = strings.TrimSpace(string(files.readFile(b.URLFile)))
	}
	if files.err != nil {
		return broker.Credentials{}, broker.Errorf(broker.ClassInvalid, "reading the broker credentials: %w", files.err)
	}
	return credentials, nil
}

// credentialReader reads files until the first error.
type credentialReader struct{ err error }

func (f *credentialReader) readFile(path string) []byte {
	if path == "" || f.err != nil {
		return nil
	}
	var raw []byte
	raw, f.err = os.ReadFile(path)
	return raw
}

// readLogin reads a file that the named field refers to. An empty file is an error: the
// worker would otherwise log in anonymously, and the broker's error would not show why.
func (f *credentialReader) readLogin(field, path string) string {
	text := strings.TrimRight(string(f.readFile(path)), "\r\n")
	if path != "" && text == "" && f.err == nil {
		f.err = fmt.Errorf("broker.%s: %s is empty", field, path)
	}
	return text
}
