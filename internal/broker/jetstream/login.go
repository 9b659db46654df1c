package jetstream

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// currentCredentials keeps the last credentials that could be read.
type currentCredentials struct {
	mu          sync.Mutex
	credentials broker.Credentials
	// conn uses them; nil until it is established.
	conn atomic.Pointer[nats.Conn]
}

// get returns the current credentials, or the last credentials if reading fails, as it can while files are replaced.
func (c *currentCredentials) get() broker.Credentials {
	c.mu.Lock()
	defer c.mu.Unlock()
	refresh := c.credentials.Refresh
	if refresh == nil {
		return c.credentials
	}
	if refreshed, err := refresh(); err == nil {
		refreshed.Refresh = refresh
		takeUserFromURL(&refreshed)
		c.credentials = refreshed
	}
	return c.credentials
}

// takeUserFromURL moves the user in the URLs to the credentials, if all servers have the same user, because the client library uses
// a user in a URL for the life of the connection.
func takeUserFromURL(c *broker.Credentials) {
	if c.Username != "" || c.Token != "" || len(c.NATSCredentials) > 0 || len(c.NKeySeed) > 0 {
		return
	}
	var user *url.Userinfo
	for i, one := range splitURLs(c.URL) {
		parsed, err := url.Parse(one)
		if err != nil || parsed.User == nil || i > 0 && parsed.User.String() != user.String() {
			return
		}
		user = parsed.User
	}
	if password, has := user.Password(); has {
		c.Username, c.Password = user.Username(), password
		return
	}
	c.Token = user.Username()
}

// loginOptions make each new connection log in with the current credentials.
func loginOptions(c *broker.Credentials, current *currentCredentials) ([]nats.Option, error) {
	var options []nats.Option
	switch {
	case c.Username != "":
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			now := current.get()
			return now.Username, now.Password
		}))
	case c.Token != "":
		options = append(options, nats.TokenHandler(func() string { return current.get().Token }))
	case len(c.NATSCredentials) == 0 && len(c.NKeySeed) > 0:
		return nkeyOptions(c.NKeySeed, current)
	}
	if len(c.NATSCredentials) == 0 {
		return options, nil
	}
	if _, err := nkeys.ParseDecoratedUserNKey(c.NATSCredentials); err != nil {
		// The cause may quote the file.
		return nil, broker.Errorf(broker.ClassInvalid, "invalid NATS credentials file: it has no user seed")
	}
	return append(options, nats.UserJWT(
		func() (string, error) { return nkeys.ParseDecoratedJWT(current.get().NATSCredentials) },
		func(nonce []byte) ([]byte, error) { return signNonce(current.get().NATSCredentials, nonce) },
	)), nil
}

// nkeyOptions make each new connection log in with the current seed. The client library has no handler for the public key, so the
// handler that selects a server sets it: the library calls this handler with its lock held, before it reconnects.
func nkeyOptions(seed []byte, current *currentCredentials) ([]nats.Option, error) {
	public, err := publicNKey(seed)
	if err != nil {
		// The cause may quote the seed.
		return nil, broker.Errorf(broker.ClassInvalid, "invalid nkey: it must be the seed of a user, which begins with SU")
	}
	return []nats.Option{
		nats.Nkey(public, func(nonce []byte) ([]byte, error) { return signNonce(current.get().NKeySeed, nonce) }),
		nats.ReconnectToServer(func([]nats.Server, nats.ServerInfo) (*nats.Server, time.Duration) {
			conn := current.conn.Load()
			if changed, err := publicNKey(current.get().NKeySeed); err == nil && conn != nil {
				conn.Opts.Nkey = changed
			}
			return nil, 0 // the library selects a server
		}),
	}, nil
}

func publicNKey(seed []byte) (string, error) {
	key, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		return "", err
	}
	defer key.Wipe()
	return key.PublicKey()
}

// signNonce signs with the seed of a user, or the seed in a credentials file.
func signNonce(seed, nonce []byte) ([]byte, error) {
	key, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	return key.Sign(nonce)
}

// tlsOptions make each new connection use the current certificates.
func tlsOptions(c *broker.Credentials, current *currentCredentials) ([]nats.Option, error) {
	if c.TLS == nil {
		return nil, nil
	}
	config, err := c.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	options := []nats.Option{nats.Secure(config)}
	currentConfig := func() (*tls.Config, error) {
		return cmp.Or(current.get().TLS, c.TLS).ClientConfig()
	}
	var certificate nats.TLSCertHandler
	if len(config.Certificates) > 0 {
		certificate = func() (tls.Certificate, error) {
			c, err := currentConfig()
			if err != nil || len(c.Certificates) == 0 {
				return config.Certificates[0], err
			}
			return c.Certificates[0], nil
		}
	}
	var authorities nats.RootCAsHandler
	if config.RootCAs != nil {
		authorities = func() (*x509.CertPool, error) {
			c, err := currentConfig()
			if err != nil || c.RootCAs == nil {
				return config.RootCAs, err
			}
			return c.RootCAs, nil
		}
	}
	if certificate != nil || authorities != nil {
		options = append(options, nats.ClientTLSConfig(certificate, authorities))
	}
	return options, nil
}
