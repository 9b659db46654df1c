// Package connection has the configuration of a connection to a broker, which workers and producers share.
package connection

// Config defines how to connect to the broker. Secrets are read from files, again for each new connection.
type Config struct {
	// URL of a NATS server, or of a Redis or Valkey with asynq queues (redis://, rediss://). Set either URL or URLFile, the path of a file
	// with the URL.
	URL     string `json:"url,omitempty"`
	URLFile string `json:"urlFile,omitempty"`
	// UsernameFile, PasswordFile and TokenFile are paths of files with the login, which has precedence over a login in the URL. Line breaks
	// at the end of a file are ignored.
	UsernameFile string `json:"usernameFile,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	TokenFile    string `json:"tokenFile,omitempty"`
	// CredentialsFile is the path of a NATS credentials file.
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// NKeyFile is the path of a file with the seed of a NATS user.
	NKeyFile string `json:"nkeyFile,omitempty"`
	// JetStreamDomain is the JetStream domain with the queues. The default is the domain of the server in the URL.
	JetStreamDomain string `json:"jetStreamDomain,omitempty"`
	// InboxPrefix is the prefix of the subjects on which a NATS server answers. The default is _INBOX.
	InboxPrefix string `json:"inboxPrefix,omitempty"`
	// Sentinel finds a Redis server through Sentinels, whose addresses are in the URL.
	Sentinel SentinelConfig `json:"sentinel,omitzero"`
	// TLS settings of the connection.
	TLS TLSConfig `json:"tls,omitzero"`
}

// SentinelConfig defines which server the Sentinels monitor, and how to log in to them.
type SentinelConfig struct {
	// MasterName is the name under which the Sentinels monitor the server.
	MasterName string `json:"masterName,omitempty"`
	// UsernameFile and PasswordFile are paths of files with the login at the Sentinels. The default is no login.
	UsernameFile string `json:"usernameFile,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
}

// TLSConfig defines how the broker's certificate is verified and which client certificate is presented.
type TLSConfig struct {
	// CAFile is the path of the certificate authorities that may sign the broker's certificate. The default are the authorities of the
	// system.
	CAFile string `json:"caFile,omitempty"`
	// CertificateFile and KeyFile are the paths of the client certificate and its key.
	CertificateFile string `json:"certificateFile,omitempty"`
	KeyFile         string `json:"keyFile,omitempty"`
	// ServerName is the host name expected in the broker's certificate. The default is the host of the URL.
	ServerName string `json:"serverName,omitempty"`
}
