package worker

import (
	"context"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/engines"
	"github.com/yardmaster/yardmaster/internal/broker/source"
)

// connect reads the broker's secrets and connects once.
func (b *Broker) connect(ctx context.Context, name string) (broker.Engine, error) {
	access := engines.Access{Access: source.Access{URL: b.URL, Name: name}}
	var err error
	read := func(path string) []byte {
		if path == "" || err != nil {
			return nil
		}
		var raw []byte
		raw, err = os.ReadFile(path)
		return raw
	}
	if b.URLFile != "" {
		access.URL = strings.TrimSpace(string(read(b.URLFile)))
	}
	access.Credentials = read(b.CredentialsFile)
	if b.TLS != (TLS{}) {
		access.TLS = &source.TLS{
			CA: read(b.TLS.CAFile), Certificate: read(b.TLS.CertificateFile), Key: read(b.TLS.KeyFile), ServerName: b.TLS.ServerName,
		}
	}
	if err != nil {
		return nil, broker.Fail(broker.Invalid, "reading what the broker needs: %w", err)
	}
	return engines.Connect(ctx, access)
}
