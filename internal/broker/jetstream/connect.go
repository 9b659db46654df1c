package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/backlog/source"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Options say how a server is reached.
type Options struct {
	// URL of a server, or of several, with commas between. It may hold a password, so it is
	// never part of an error.
	URL string
	// Username and Password, or else Token, go before what the URL says of them.
	Username, Password, Token string
	// Credentials are the content of a NATS credentials file.
	Credentials []byte
	// TLS, for a server that asks for it or has a certificate of one's own authority.
	TLS *source.TLS
	// Name of the connection, for who looks at the server.
	Name string
	// Replicas of the streams that are made; 0: one.
	Replicas int
	// Now tells the Options that hold by now, of which each connection that is made anew
	// takes login and certificates; nil: those that are given.
	Now func() (Options, error)
}

const (
	dialTimeout = 5 * time.Second
	pingEvery   = 10 * time.Second
	// oldestServer can pause consumers.
	oldestServer = "2.11"
	// schedulingServer can deliver messages later.
	schedulingServer = "2.12"
)

// Engine is a connection to a server. See package broker.
type Engine struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	replicas int
	// denied is the last error that the server told by itself: of a request that it does
	// not permit, the requester only hears that nobody answered.
	denied atomic.Pointer[denial]
}

type denial struct {
	err error
	at  time.Time
}

var _ broker.Engine = (*Engine)(nil)

// Connect connects to a server. A connection that is lost later is made anew, for as long
// as the Engine lives.
func Connect(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{replicas: max(o.Replicas, 1)}
	if o.Now != nil {
		o.takeUser()
	}
	servers, err := o.servers()
	if err != nil {
		return nil, err
	}
	options, err := o.natsOptions()
	if err != nil {
		return nil, err
	}
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		e.denied.Store(&denial{err, time.Now()})
	}))
	if deadline, set := ctx.Deadline(); set {
		options = append(options, nats.Timeout(min(dialTimeout, time.Until(deadline))))
	}
	if e.nc, err = nats.Connect(servers, options...); err != nil {
		return nil, e.classify("connecting", err)
	}
	if e.js, err = jetstream.New(e.nc); err != nil {
		e.nc.Close()
		return nil, err
	}
	if err := e.check(ctx); err != nil {
		e.nc.Close()
		return nil, err
	}
	return e, nil
}

// check asks the server whether it can do at all what is needed.
func (e *Engine) check(ctx context.Context) error {
	if version := e.nc.ConnectedServerVersion(); !atLeast(version, oldestServer) {
		return broker.Errorf(broker.ClassInvalid, "the server's version is %s, must be at least %s", version, oldestServer)
	}
	if _, err := e.js.AccountInfo(ctx); err != nil {
		return e.classify("asking for JetStream", err)
	}
	return nil
}

func (o *Options) natsOptions() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(dialTimeout),
		nats.PingInterval(pingEvery),
		nats.MaxReconnects(-1),
		// Servers that are down must not be told from those that refuse us for good: a
		// Secret may have been put right since.
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(reconnectDelay),
	}
	p := &present{options: *o}
	login, err := o.login(p)
	if err != nil {
		return nil, err
	}
	secure, err := o.secure(p)
	if err != nil {
		return nil, err
	}
	return slices.Concat(options, login, secure), nil
}

func reconnectDelay(tries int) time.Duration {
	return broker.ReconnectDelay(tries, rand.Float64()) //nolint:gosec // to spread, not to hide
}

// servers are those of the URL. A user that one of them names would hold rather than the
// one that is given beside it, so it is left out.
func (o *Options) servers() (string, error) {
	var all []string
	for one := range strings.SplitSeq(o.URL, ",") {
		if one = strings.TrimSpace(one); !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		parsed, err := url.Parse(one)
		if parse := (*url.Error)(nil); errors.As(err, &parse) {
			return "", broker.Errorf(broker.ClassInvalid, "url is not one: %w", parse.Err)
		}
		if schemes := []string{"nats", "tls", "ws", "wss"}; !slices.Contains(schemes, parsed.Scheme) {
			return "", broker.Errorf(broker.ClassInvalid, "url has the scheme %q, must be one of %v", parsed.Scheme, schemes)
		}
		if parsed.Hostname() == "" {
			return "", broker.Errorf(broker.ClassInvalid, "url has no host")
		}
		if o.Username != "" || o.Token != "" {
			parsed.User = nil
			one = parsed.String()
		}
		all = append(all, one)
	}
	return strings.Join(all, ","), nil
}

// Disconnect ends the connection, once what is under way has been sent.
func (e *Engine) Disconnect() {
	// A server that is not there would be waited for.
	_ = e.nc.FlushTimeout(time.Second)
	e.nc.Close()
}

// schedules tells whether the server can deliver messages later.
func (e *Engine) schedules() bool { return atLeast(e.nc.ConnectedServerVersion(), schedulingServer) }

// atLeast compares the first two numbers of two versions.
func atLeast(version, least string) bool {
	var a, b, c, d int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &a, &b); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(least, "%d.%d", &c, &d); err != nil {
		return false
	}
	return a > c || a == c && b >= d
}
