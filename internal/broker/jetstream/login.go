package jetstream

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// present is what the Options say at present.
type present struct {
	mu      sync.Mutex
	options Options
}

// look tells what holds now: what held before, where that cannot be read, as while its
// files are replaced.
func (p *present) look() Options {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Now
	if now == nil {
		return p.options
	}
	if options, err := now(); err == nil {
		options.Now = now
		options.takeUser()
		p.options = options
	}
	return p.options
}

// takeUser makes a user that the URL names the one of the Options: what stands in the URL
// would hold for as long as the connection lives. Servers with different users are left.
func (o *Options) takeUser() {
	if o.Username != "" || o.Token != "" || len(o.Credentials) > 0 {
		return
	}
	var user *url.Userinfo
	for i, one := range strings.Split(o.URL, ",") {
		if one = strings.TrimSpace(one); !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		parsed, err := url.Parse(one)
		if err != nil || parsed.User == nil || i > 0 && parsed.User.String() != user.String() {
			return
		}
		user = parsed.User
	}
	if password, has := user.Password(); has {
		o.Username, o.Password = user.Username(), password
		return
	}
	o.Token = user.Username()
}

// login has each connection that is made log in with what holds by then.
func (o *Options) login(p *present) ([]nats.Option, error) {
	var options []nats.Option
	switch {
	case o.Username != "":
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			now := p.look()
			return now.Username, now.Password
		}))
	case o.Token != "":
		options = append(options, nats.TokenHandler(func() string { return p.look().Token }))
	}
	if len(o.Credentials) == 0 {
		return options, nil
	}
	if _, err := nkeys.ParseDecoratedUserNKey(o.Credentials); err != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "credentials are not those of a user: %w", err)
	}
	return append(options, nats.UserJWT(
		func() (string, error) { return nkeys.ParseDecoratedJWT(p.look().Credentials) },
		func(nonce []byte) ([]byte, error) {
			key, err := nkeys.ParseDecoratedUserNKey(p.look().Credentials)
			if err != nil {
				return nil, err
			}
			defer key.Wipe()
			return key.Sign(nonce)
		},
	)), nil
}

// secure has each connection go by the certificates that hold by then.
func (o *Options) secure(p *present) ([]nats.Option, error) {
	if o.TLS == nil {
		return nil, nil
	}
	config, err := o.TLS.Config()
	if err != nil {
		return nil, err
	}
	options := []nats.Option{nats.Secure(config)}
	now := func() (*tls.Config, error) {
		if t := p.look().TLS; t != nil {
			return t.Config()
		}
		return config, nil
	}
	var certificate nats.TLSCertHandler
	if len(config.Certificates) > 0 {
		certificate = func() (tls.Certificate, error) {
			c, err := now()
			if err != nil || len(c.Certificates) == 0 {
				return config.Certificates[0], err
			}
			return c.Certificates[0], nil
		}
	}
	var authorities nats.RootCAsHandler
	if config.RootCAs != nil {
		authorities = func() (*x509.CertPool, error) {
			c, err := now()
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
