package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Credentials describe how to reach and log in to a broker or a backlog source. They must not appear in an error or a log.
type Credentials struct {
	// URL of a server, or of several servers of NATS or Redis Cluster, separated by commas. Username, Password and Token override its user
	// and password.
	URL                string
	Username, Password string
	// Token is a NATS token, or a bearer token for a source that speaks HTTP.
	Token string
	// NATSCredentials is the content of a NATS credentials file.
	NATSCredentials []byte
	// NKeySeed is the seed of a NATS user.
	NKeySeed []byte
	// JetStreamDomain has the queues. Default: the domain of the server.
	JetStreamDomain string
	// InboxPrefix is the prefix of the subjects on which NATS servers answer. Default: _INBOX.
	InboxPrefix string
	// Sentinel is set if the URL has the addresses of Redis Sentinels.
	Sentinel *Sentinel
	// TLS is nil for a server without TLS, or with a certificate that the system trusts.
	TLS *TLS
	// Name identifies the connection to people who inspect the server.
	Name string
	// Refresh returns the current credentials for each new connection, because passwords and certificates rotate. Optional.
	Refresh func() (Credentials, error)
	// Dial opens the connections. Default: a net.Dialer.
	Dial DialFunc
	// ConcealCauses makes Conceal remove causes from errors.
	ConcealCauses bool
}

// Equal reports whether both result in the same connection. It ignores the functions.
func (c *Credentials) Equal(other *Credentials) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.URL == other.URL && c.Username == other.Username && c.Password == other.Password &&
		c.Token == other.Token && bytes.Equal(c.NATSCredentials, other.NATSCredentials) &&
		bytes.Equal(c.NKeySeed, other.NKeySeed) && c.JetStreamDomain == other.JetStreamDomain && c.InboxPrefix == other.InboxPrefix &&
		c.Sentinel.equal(other.Sentinel) && c.TLS.equal(other.TLS) && c.Name == other.Name
}

// UserOf returns the user and the password to log in with at a parsed URL.
func (c *Credentials) UserOf(parsed *url.URL) (username, password string) {
	if c.Username != "" {
		return c.Username, c.Password
	}
	password, _ = parsed.User.Password()
	return parsed.User.Username(), password
}

// Sentinel describes how to find a Redis server through Sentinels.
type Sentinel struct {
	// MasterName is the name under which the Sentinels monitor the server.
	MasterName string
	// Username and Password are the login at the Sentinels; empty for none.
	Username, Password string
}

func (s *Sentinel) equal(other *Sentinel) bool {
	return s == other || s != nil && other != nil && *s == *other
}

// TLS contains the parts of a TLS configuration, as PEM.
type TLS struct {
	CA, Certificate, Key []byte
	// ServerName is the name in the server's certificate. Default: the host of the URL.
	ServerName string
}

// NewTLS returns nil if all parts are empty.
func NewTLS(ca, certificate, key []byte, serverName string) *TLS {
	if len(ca)+len(certificate)+len(key) == 0 && serverName == "" {
		return nil
	}
	return &TLS{CA: ca, Certificate: certificate, Key: key, ServerName: serverName}
}

func (t *TLS) equal(other *TLS) bool {
	if t == nil || other == nil {
		return t == other
	}
	return bytes.Equal(t.CA, other.CA) && bytes.Equal(t.Certificate, other.Certificate) && bytes.Equal(t.Key, other.Key) &&
		t.ServerName == other.ServerName
}

// ClientConfig returns a configuration for clients. Without a CA, it trusts the certificate authorities of the system.
func (t *TLS) ClientConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil {
		return config, nil
	}
	config.ServerName = t.ServerName
	if len(t.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, Errorf(ClassInvalid, "tls: the CA certificate is not PEM")
		}
	}
	if len(t.Certificate) > 0 || len(t.Key) > 0 {
		pair, err := tls.X509KeyPair(t.Certificate, t.Key)
		if err != nil {
			// The cause may quote the certificate.
			return nil, Errorf(ClassInvalid, "tls: invalid client certificate or key: both must be PEM, and belong together")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// InvalidURLError is the error of ParseURL.
type InvalidURLError string

func (e InvalidURLError) Error() string { return string(e) }

// ParseURL parses a URL that must have a host and one of the schemes. Its error contains no part of the URL, not even the scheme, because
// a password may be configured as URL by mistake.
func ParseURL(text string, schemes ...string) (*url.URL, error) {
	parsed, err := url.Parse(strings.TrimSpace(text))
	if failure := (*url.Error)(nil); errors.As(err, &failure) {
		return nil, &ClassifiedError{ClassInvalid, InvalidURLError("url is not a valid URL")}
	}
	if !slices.Contains(schemes, parsed.Scheme) {
		return nil, &ClassifiedError{ClassInvalid, InvalidURLError(fmt.Sprintf("url has an unsupported scheme, must be one of %v", schemes))}
	}
	if parsed.Hostname() == "" {
		return nil, &ClassifiedError{ClassInvalid, InvalidURLError("url has no host")}
	}
	return parsed, nil
}
