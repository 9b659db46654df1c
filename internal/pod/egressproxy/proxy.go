package egressproxy

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

// Options of a Proxy.
type Options struct {
	// Namespace of the proxy and its sessions.
	Namespace string
	// Keys of the operator that verify tokens.
	Keys []ed25519.PublicKey
	// Rules of the SessionRunners.
	Rules sessionrunner.Rules
	// Network decides which addresses are allowed.
	Network sessionrunner.Network
	Limits  Limits
	// Resolve resolves names. Default: the DNS servers of the Pod.
	Resolve Resolver
	// Now returns the time. Default: time.Now.
	Now      func() time.Time
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Proxy is an http.Handler that executes CONNECT requests of sessions.
type Proxy struct {
	options  Options
	server   *goproxy.ProxyHttpServer
	dialer   *dialer
	slots    *slots
	refusals *refusals
	opened   *prometheus.CounterVec
	open     *prometheus.GaugeVec

	mu      sync.Mutex
	tunnels map[*tunnel]struct{}
	// changed is closed and replaced when a tunnel ends.
	changed chan struct{}
}

// connectRequest is an authenticated request to an allowed host.
type connectRequest struct {
	session adminauth.Session
	expires time.Time
	host    string
	port    uint16
}

type connectRequestKey struct{}

// New returns a Proxy.
func New(o Options) *Proxy {
	if o.Resolve == nil {
		o.Resolve = resolve
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Proxy{
		options: o, server: goproxy.NewProxyHttpServer(), dialer: &dialer{o.Network, o.Resolve},
		slots: &slots{limits: o.Limits, sessions: map[string]int{}}, refusals: newRefusals(o.Log, o.Registry),
		tunnels: map[*tunnel]struct{}{}, changed: make(chan struct{}),
	}
	labels := []string{"namespace", "runner"}
	p.opened = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "yardmaster_egress_connections_total", Help: "Connections of sessions to hosts through the egress proxy, by SessionRunner."}, labels)
	p.open = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "yardmaster_egress_connections", Help: "Open connections of sessions to hosts through the egress proxy, by SessionRunner."}, labels)
	o.Registry.MustRegister(p.opened, p.open)
	p.server.Logger = silentLogger{}
	p.server.OnRequest().HandleConnectFunc(p.handleConnect)
	p.server.ConnectDialWithReq = p.dial
	p.server.ConnectionErrHandler = func(w io.Writer, ctx *goproxy.ProxyCtx, err error) {
		refused := refusalf(http.StatusBadGateway, reasonUnreachable, "the host cannot be reached")
		errors.As(err, &refused)
		_ = refused.response(ctx.Req).Write(w) //nolint:bodyclose // its body is a string; the session may have closed the connection
	}
	return p
}

// silentLogger drops the log of the library: sessions could fill it.
type silentLogger struct{}

// Printf implements goproxy.Logger.
func (silentLogger) Printf(string, ...any) {}

// ServeHTTP accepts only CONNECT, so that the library never sends a request itself.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		p.refusals.record(p.options.Namespace, &adminauth.Session{}, "", refusalf(http.StatusMethodNotAllowed, reasonMethodNotAllowed, "method %.16q", r.Method))
		w.Header().Set("Connection", "close")
		http.Error(w, "egress proxy: only CONNECT is allowed, for https URLs", http.StatusMethodNotAllowed)
		return
	}
	p.server.ServeHTTP(w, r)
}

// handleConnect authenticates the session and checks its host.
func (p *Proxy) handleConnect(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
	request, refused := p.authorize(ctx.Req)
	if refused != nil {
		requested := ctx.Req.URL.Host
		requested = requested[:min(len(requested), sessionrunner.MaxHostBytes)] // bounds a session's text in the log
		p.refusals.record(p.options.Namespace, &request.session, requested, refused)
		ctx.Resp = refused.response(ctx.Req) //nolint:bodyclose // the library writes it
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
	}
	listener.Prove(ctx.Req.Context())
	ctx.Req = ctx.Req.WithContext(context.WithValue(ctx.Req.Context(), connectRequestKey{}, request))
	return &goproxy.ConnectAction{Action: goproxy.ConnectAccept}, host
}

func (p *Proxy) authorize(r *http.Request) (*connectRequest, *refusal) {
	c := &connectRequest{}
	name, token, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
	if !ok {
		return c, refusalf(http.StatusProxyAuthRequired, reasonUnauthenticated, "the request has no token of a session")
	}
	session, expires, err := adminauth.VerifySession(token, p.options.Keys, p.options.Namespace, p.options.Now())
	if err != nil {
		return c, refusalf(http.StatusProxyAuthRequired, reasonUnauthenticated, "%s", err)
	}
	if session.Name != name {
		return c, refusalf(http.StatusProxyAuthRequired, reasonUnauthenticated, "the token is for another session")
	}
	c.session, c.expires = session, expires
	host, port, err := net.SplitHostPort(r.URL.Host)
	if err != nil {
		return c, refusalf(http.StatusBadRequest, reasonHostNotAllowed, "the host has no port")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return c, refusalf(http.StatusBadRequest, reasonHostNotAllowed, "the port is not a number from 1 to 65535")
	}
	c.port = uint16(number)
	if c.host, err = sessionrunner.NormalizeHost(host); err != nil {
		return c, refusalf(http.StatusForbidden, reasonHostNotAllowed, "the host is not allowed: %s", err)
	}
	if !p.options.Rules.Allow(session.Runner, c.host, c.port) {
		return c, refusalf(http.StatusForbidden, reasonHostNotAllowed, "SessionRunner %s does not allow %s:%d", session.Runner, c.host, c.port)
	}
	return c, nil
}

var errNotAuthorized = errors.New("the request was not authorized")

// dial connects to the host of an authorized request. The library calls it, and forwards data in both directions.
func (p *Proxy) dial(r *http.Request, _, _ string) (net.Conn, error) {
	c, authorized := r.Context().Value(connectRequestKey{}).(*connectRequest)
	if !authorized {
		return nil, errNotAuthorized
	}
	t, err := p.openTunnel(r.Context(), c)
	if err != nil {
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			p.refusals.record(p.options.Namespace, &c.session, c.host, refused)
		}
		return nil, err
	}
	return t, nil
}

func (p *Proxy) openTunnel(ctx context.Context, c *connectRequest) (*tunnel, error) {
	if !p.slots.take(c.session.UID) {
		return nil, refusalf(http.StatusTooManyRequests, reasonTooManyConnections, "too many connections: close some")
	}
	ctx, cancel := context.WithTimeout(ctx, p.options.Limits.Dial)
	defer cancel()
	connection, err := p.dialer.dial(ctx, c.host, c.port)
	if err != nil {
		p.slots.release(c.session.UID)
		return nil, err
	}
	return p.newTunnel(connection, c), nil
}

func (p *Proxy) addTunnel(t *tunnel) {
	p.opened.WithLabelValues(t.session.Namespace, t.session.Runner).Inc()
	p.open.WithLabelValues(t.session.Namespace, t.session.Runner).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tunnels[t] = struct{}{}
}

func (p *Proxy) removeTunnel(t *tunnel) {
	p.open.WithLabelValues(t.session.Namespace, t.session.Runner).Dec()
	p.slots.release(t.session.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tunnels, t)
	close(p.changed)
	p.changed = make(chan struct{})
}

// Drain waits until all tunnels have ended or ctx ends, and then closes the remaining tunnels.
func (p *Proxy) Drain(ctx context.Context) {
	for {
		p.mu.Lock()
		left, changed := len(p.tunnels), p.changed
		p.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			p.closeTunnels()
			return
		}
	}
}

func (p *Proxy) closeTunnels() {
	p.mu.Lock()
	var open []*tunnel
	for t := range p.tunnels {
		open = append(open, t)
	}
	p.mu.Unlock()
	for _, t := range open {
		_ = t.Close()
	}
}

// Limits bound the resources that sessions can occupy.
type Limits struct {
	// Session and Total are the numbers of tunnels of one session and of all sessions.
	Session, Total int
	// Hello is the time from the start of a tunnel to its complete ClientHello.
	Hello time.Duration
	// Idle is the time without any data after which a tunnel is closed.
	Idle time.Duration
	// Lifetime is the time after which a tunnel is closed in any case.
	Lifetime time.Duration
	// Dial is the time for resolving a name and connecting.
	Dial time.Duration
}

// DefaultLimits are the limits of the program. A tunnel needs about 100 KiB.
var DefaultLimits = Limits{Session: 64, Total: 512, Hello: 10 * time.Second, Idle: 15 * time.Minute, Lifetime: 4 * time.Hour, Dial: 10 * time.Second}

type slots struct {
	mu       sync.Mutex
	limits   Limits
	total    int
	sessions map[string]int // by UID
}

// take occupies a slot for a session, unless the session or all sessions are at their limit.
func (s *slots) take(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.limits.Total || s.sessions[session] >= s.limits.Session {
		return false
	}
	s.total++
	s.sessions[session]++
	return true
}

func (s *slots) release(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.sessions[session]--
	if s.sessions[session] == 0 {
		delete(s.sessions, session)
	}
}
