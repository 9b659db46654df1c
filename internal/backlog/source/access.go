package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Access says how a place is reached. None of it may get into an error or a log.
type Access struct {
	// URL may hold a user and a password; Username and Password go before them.
	URL                string
	Username, Password string
	// Token is sent as a bearer's where the place speaks HTTP.
	Token string
	// TLS, for a place with a certificate of one's own authority, or that asks for one.
	TLS *TLS
	// Name of the connection, for who looks at the other end.
	Name string
	// Refresh tells what holds by now. Places that keep connections ask it for the name and the
	// password of each that is made anew; nil: what stands here.
	Refresh func() (Access, error)
}

// TLS are the parts of a TLS connection, as PEM.
type TLS struct {
	CA, Certificate, Key []byte
	// ServerName, if it is not the one in the URL.
	ServerName string
}

// Config of TLS. Without any of the parts the system's authorities are trusted.
func (t *TLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil {
		return config, nil
	}
	config.ServerName = t.ServerName
	if len(t.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, broker.Errorf(broker.ClassInvalid, "tls: the authority's certificate is not PEM")
		}
	}
	if len(t.Certificate) > 0 || len(t.Key) > 0 {
		pair, err := tls.X509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, broker.Errorf(broker.ClassInvalid, "tls: the certificate and its key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// ParseURL reads a URL of one of the schemes. Its error does not repeat it.
func ParseURL(text string, schemes ...string) (*url.URL, error) {
	parsed, err := url.Parse(strings.TrimSpace(text))
	if failure := (*url.Error)(nil); errors.As(err, &failure) {
		// The cause may quote what it stumbled over, which may be a part of a password.
		return nil, broker.Errorf(broker.ClassInvalid, "url is not one")
	}
	if !slices.Contains(schemes, parsed.Scheme) {
		return nil, broker.Errorf(broker.ClassInvalid, "url has the scheme %q, must be one of %v", parsed.Scheme, schemes)
	}
	if parsed.Hostname() == "" {
		return nil, broker.Errorf(broker.ClassInvalid, "url has no host")
	}
	return parsed, nil
}

// User and password that hold.
func (a *Access) User(parsed *url.URL) (name, password string) {
	if a.Username != "" {
		return a.Username, a.Password
	}
	password, _ = parsed.User.Password()
	return parsed.User.Username(), password
}
