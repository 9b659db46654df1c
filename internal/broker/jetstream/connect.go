package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	defaultPort  = "4222"
	dialTimeout  = 5 * time.Second
	pingInterval = 10 * time.Second
	// minServerVersion is the first version that can pause consumers.
	minServerVersion = "2.11"
	// delayingServerVersion is the first version that moves messages from one stream to another without a loss, as delayed messages need.
	delayingServerVersion = "2.14"
	// minAPILevel and delayingAPILevel are the levels of the JetStream API in those versions.
	minAPILevel, delayingAPILevel = 1, 4
)

// Engine implements broker.Engine with a connection to a NATS server.
type Engine struct {
	nc *nats.Conn
	js jetstream.JetStream
	// domain of JetStream; empty for the domain of the server.
	domain string
	// domainLevel is the level of the JetStream API in the domain.
	domainLevel int
	// credentials conceal errors.
	credentials *broker.Credentials
	// lastServerError is the last asynchronous error from the server, or why the connection was closed. A request without
	// permission, or with a response beyond a limit, fails with a timeout; only this error has the reason.
	lastServerError atomic.Pointer[serverError]
	ended           chan struct{}
	// isDisconnected: Disconnect was called.
	isDisconnected atomic.Bool
}

type serverError struct {
	err error
	at  time.Time
}

// Connect connects to a NATS server that can hold queues. The connection reconnects until Disconnect.
func Connect(ctx context.Context, c broker.Credentials) (broker.Engine, error) {
	e, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := e.checkServer(ctx); err != nil {
		e.nc.Close()
		return nil, err
	}
	return e, nil
}

// connect connects to a NATS server of any version, with or without JetStream.
func connect(ctx context.Context, c broker.Credentials) (*Engine, error) {
	if c.Sentinel != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "sentinel is a setting of Redis; NATS has none")
	}
	if c.JetStreamDomain != "" && !isName(c.JetStreamDomain) {
		return nil, broker.Errorf(broker.ClassInvalid, "jetStreamDomain must consist of letters, digits, '-' and '_'")
	}
	if c.Refresh != nil {
		takeUserFromURL(&c)
	}
	e := &Engine{credentials: &c, domain: c.JetStreamDomain, ended: make(chan struct{})}
	servers, err := serverURLs(&c)
	if err != nil {
		return nil, err
	}
	current := &currentCredentials{credentials: c}
	options, err := connectionOptions(&c, current)
	if err != nil {
		return nil, err
	}
	var dialer *serverDialer
	if c.Dial != nil {
		dialer = newServerDialer(ctx, &c, current)
		options = append(options, nats.SetCustomDialer(dialer), nats.SkipHostLookup(),
			nats.FlusherTimeout(dialTimeout)) // a server that does not read makes the client library wait with its lock held
	}
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		e.lastServerError.Store(&serverError{err, time.Now()})
	}), nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		if broker.ClassOf(err) != broker.ClassUnknown { // a limit of the connection
			e.lastServerError.Store(&serverError{err, time.Now()})
		}
	}), nats.ClosedHandler(func(*nats.Conn) { close(e.ended) }))
	if deadline, set := ctx.Deadline(); set {
		options = append(options, nats.Timeout(max(min(dialTimeout, time.Until(deadline)), time.Millisecond))) // it must be positive
	}
	if e.nc, err = nats.Connect(servers, options...); err != nil {
		return nil, addDialError(ctx, e.classifyError("connecting", err), servers, dialer)
	}
	if dialer != nil {
		dialer.connectBy.Store(nil)
	}
	current.conn.Store(e.nc)
	if e.domain == "" {
		e.js, err = jetstream.New(e.nc)
	} else {
		e.js, err = jetstream.NewWithDomain(e.nc, e.domain)
	}
	if err != nil {
		e.nc.Close()
		return nil, err
	}
	return e, nil
}

// addDialError adds the reason why a server cannot be reached, because the client library does not return it. Without a dialer,
// it dials the first server once more.
func addDialError(ctx context.Context, err error, servers string, last *serverDialer) error {
	switch {
	case broker.ClassOf(err) != broker.ClassUnreachable:
		return err
	case last != nil:
		if cause := last.lastError.Load(); cause != nil && *cause != nil && !errors.Is(err, *cause) {
			return fmt.Errorf("%w: %w", err, *cause)
		}
		return err
	}
	first, _, _ := strings.Cut(servers, ",")
	parsed, invalid := url.Parse(first)
	if invalid != nil {
		return err
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, cause := dialer.DialContext(ctx, "tcp", net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), defaultPort)))
	if cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	_ = conn.Close()
	return err
}

func (e *Engine) checkServer(ctx context.Context) error {
	if version := e.nc.ConnectedServerVersion(); !broker.IsVersionAtLeast(version, minServerVersion) {
		return broker.Errorf(broker.ClassInvalid, "the server's version is %s, must be at least %s", version, minServerVersion)
	}
	account, err := e.js.AccountInfo(ctx)
	switch {
	case e.domain != "" && errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return e.silentDomainError()
	case err != nil:
		return e.classifyError("reading the JetStream account", err)
	}
	if e.domainLevel = account.API.Level; e.domain != "" && e.domainLevel < minAPILevel {
		return broker.Errorf(broker.ClassInvalid, "the servers of the JetStream domain %s are too old: their version must be at least %s", e.domain, minServerVersion)
	}
	return nil
}

func connectionOptions(c *broker.Credentials, current *currentCredentials) ([]nats.Option, error) {
	delay := broker.RetryDelay
	if c.Dial != nil { // the operator has many brokers
		delay = broker.ReconnectDelay
	}
	options := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(dialTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // reconnect after authorization errors, because credentials may be corrected
		nats.CustomReconnectDelay(delay),
	}
	if c.InboxPrefix != "" {
		if !isName(strings.Split(c.InboxPrefix, ".")...) {
			return nil, broker.Errorf(broker.ClassInvalid, "inboxPrefix must consist of letters, digits, '-' and '_', separated by single dots")
		}
		options = append(options, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	login, err := loginOptions(c, current)
	if err != nil {
		return nil, err
	}
	secure, err := tlsOptions(c, current)
	if err != nil {
		return nil, err
	}
	return slices.Concat(options, login, secure), nil
}

// splitURLs returns the URLs of a list separated by commas, each with a scheme.
func splitURLs(list string) []string {
	urls := strings.Split(list, ",")
	for i, one := range urls {
		if one = strings.TrimSpace(one); !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		urls[i] = one
	}
	return urls
}

// serverURLs returns the servers to connect to. It removes the users from the URLs if the credentials have a user, a token or an
// nkey, because the client library prefers the users in URLs.
func serverURLs(c *broker.Credentials) (string, error) {
	urls, schemes := splitURLs(c.URL), []string{"nats", "tls"}
	if c.Dial == nil { // over WebSockets, the messages would have no budgets
		schemes = append(schemes, "ws", "wss")
	}
	for i, one := range urls {
		parsed, err := broker.ParseURL(one, schemes...)
		if err != nil {
			return "", err
		}
		if c.Username != "" || c.Token != "" || len(c.NKeySeed) > 0 {
			parsed.User = nil
			urls[i] = parsed.String()
		}
	}
	return strings.Join(urls, ","), nil
}

// Disconnect sends buffered messages and closes the connection.
func (e *Engine) Disconnect() {
	e.isDisconnected.Store(true)
	_ = e.nc.FlushTimeout(time.Second) // the server may not respond
	e.nc.Close()
}

// Ended is closed when the connection has ended for good. The client library reconnects after most errors, but not after those that it
// does not know, such as a message beyond a limit that was lowered meanwhile.
func (e *Engine) Ended() <-chan struct{} { return e.ended }

// EndReason returns why the server ended the connection.
func (e *Engine) EndReason() error { return e.credentials.Conceal(e.nc.LastError(), true) }

// supportsDelays reports whether the server supports delayed messages. The servers of a domain may have another version than the server
// of the connection.
func (e *Engine) supportsDelays() bool {
	if e.domain != "" {
		return e.domainLevel >= delayingAPILevel
	}
	return broker.IsVersionAtLeast(e.nc.ConnectedServerVersion(), delayingServerVersion)
}
