package client

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/internal/broker/login"
)

// BrokerConfig defines how to connect to the broker. It has the fields of broker in the configuration of a worker.
// Secrets are read from files. Each new connection reads the files again.
type BrokerConfig struct {
	// URL of a NATS server, or of a Redis or Valkey with asynq queues (redis://, rediss://).
	// Set either URL or URLFile, the path of a file that contains the URL.
	URL     string `json:"url,omitempty"`
	URLFile string `json:"urlFile,omitempty"`
	// UsernameFile, PasswordFile and TokenFile are paths of files with the login. They take
	// precedence over a login in the URL. Line breaks at the end of a file are ignored.
	UsernameFile string `json:"usernameFile,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	TokenFile    string `json:"tokenFile,omitempty"`
	// CredentialsFile is the path of a NATS credentials file.
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// NKeyFile is the path of a file with the seed of a NATS user.
	NKeyFile string `json:"nkeyFile,omitempty"`
	// JetStreamDomain is the JetStream domain that has the queues. The default is the domain of the
	// server that the URL names.
	JetStreamDomain string `json:"jetStreamDomain,omitempty"`
	// InboxPrefix is the prefix of the subjects on which a NATS server answers. The default is
	// _INBOX.
	InboxPrefix string `json:"inboxPrefix,omitempty"`
	// Sentinel finds a Redis server through Sentinels, whose addresses the URL has.
	Sentinel SentinelConfig `json:"sentinel,omitzero"`
	// TLS settings of the connection.
	TLS TLSConfig `json:"tls,omitzero"`
}

// SentinelConfig defines which server the Sentinels monitor, and how to log in to them.
type SentinelConfig struct {
	// MasterName is the name under which the Sentinels monitor the server.
	MasterName string `json:"masterName,omitempty"`
	// UsernameFile and PasswordFile are paths of files with the login at the Sentinels. The default is
	// no login.
	UsernameFile string `json:"usernameFile,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
}

// TLSConfig defines how the broker's certificate is verified and which client certificate is
// presented.
type TLSConfig struct {
	// CAFile is the path of the certificate authorities that may sign the broker's
	// certificate. By default those of the system are used.
	CAFile string `json:"caFile,omitempty"`
	// CertificateFile and KeyFile are the paths of the client certificate and its key.
	CertificateFile string `json:"certificateFile,omitempty"`
	KeyFile         string `json:"keyFile,omitempty"`
	// ServerName is the host name expected in the broker's certificate. The default is the
	// host of the URL.
	ServerName string `json:"serverName,omitempty"`
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

// The environment variables of a producer.
const (
	envConfigFile = "YARDMASTER_CONFIG_FILE"
	envBrokerURL  = "YARDMASTER_BROKER_URL"
)

// FromEnvironment returns options with the broker of the file that YARDMASTER_CONFIG_FILE names, the configuration
// of a worker, of which it reads broker only; or else with the URL in YARDMASTER_BROKER_URL. So a handler in a
// WorkerPool reaches the broker of its own queues.
func FromEnvironment() (Options, error) { return parseEnvironment(os.Getenv) }

func parseEnvironment(getenv func(string) string) (Options, error) {
	path := getenv(envConfigFile)
	if path == "" {
		return Options{Broker: BrokerConfig{URL: getenv(envBrokerURL)}}, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return Options{}, err
	}
	config, err := parseWorkerConfig(raw)
	if err != nil {
		return Options{}, fmt.Errorf("%s: %w", path, err)
	}
	if config == (BrokerConfig{}) {
		config.URL = getenv(envBrokerURL)
	}
	return Options{Broker: config}, nil
}

// parseWorkerConfig reads the field broker of the configuration of a worker. Unknown fields in it are an error.
func parseWorkerConfig(raw []byte) (BrokerConfig, error) {
	var file struct {
		Broker json.RawMessage `json:"broker"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil || len(file.Broker) == 0 {
		return BrokerConfig{}, err
	}
	var config BrokerConfig
	if err := yaml.UnmarshalStrict(file.Broker, &config); err != nil {
		return BrokerConfig{}, fmt.Errorf("broker: %w", err)
	}
	return config, nil
}
