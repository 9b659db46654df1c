package worker

import (
	"context"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/internal/broker/login"
)

// connectEngine reads the broker's credentials from their files and connects.
func (b *BrokerConfig) connectEngine(ctx context.Context, name string) (broker.Engine, dial.EngineName, error) {
	return b.files().Connect(ctx, name)
}

func (b *BrokerConfig) files() *login.Files {
	return &login.Files{
		URL: b.URL, URLFile: b.URLFile,
		UsernameFile: b.UsernameFile, PasswordFile: b.PasswordFile, TokenFile: b.TokenFile,
		CredentialsFile: b.CredentialsFile, NKeyFile: b.NKeyFile,
		JetStreamDomain: b.JetStreamDomain, InboxPrefix: b.InboxPrefix,
		SentinelMaster: b.Sentinel.MasterName, SentinelUsernameFile: b.Sentinel.UsernameFile, SentinelPasswordFile: b.Sentinel.PasswordFile,
		CAFile: b.TLS.CAFile, CertificateFile: b.TLS.CertificateFile, KeyFile: b.TLS.KeyFile, ServerName: b.TLS.ServerName,
	}
}
