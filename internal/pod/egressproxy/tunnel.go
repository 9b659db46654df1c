package egressproxy

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

// tunnel is a connection to a host. It forwards nothing in either direction before the session has sent a ClientHello for the host.
//
// It does not embed a *net.TCPConn: io.Copy would find its method ReadFrom, and bypass Write.
type tunnel struct {
	net.Conn

	tcp     *net.TCPConn // the same connection
	proxy   *Proxy
	session adminauth.Session
	host    string

	// hello is the data of the session before its ClientHello is verified. Only Write uses it.
	hello    bytes.Buffer
	verified chan struct{}

	lastActive atomic.Int64 // nanoseconds
	closed     chan struct{}
	closeOnce  sync.Once
}

// newTunnel returns a tunnel that owns a slot of the session.
func (p *Proxy) newTunnel(connection *net.TCPConn, c *connectRequest) *tunnel {
	t := &tunnel{Conn: connection, tcp: connection, proxy: p, session: c.session, host: c.host, verified: make(chan struct{}), closed: make(chan struct{})}
	t.touch()
	p.addTunnel(t)
	limits := p.options.Limits
	limits.Lifetime = min(limits.Lifetime, c.expires.Sub(p.options.Now()))
	go t.enforceTimes(&limits)
	return t
}

func (t *tunnel) touch() { t.lastActive.Store(time.Now().UnixNano()) }

// enforceTimes closes the tunnel without a ClientHello, after an idle time, and at the end of its lifetime.
func (t *tunnel) enforceTimes(limits *Limits) {
	hello, idle, lifetime := time.NewTimer(limits.Hello), time.NewTimer(limits.Idle), time.NewTimer(limits.Lifetime)
	defer func() { hello.Stop(); idle.Stop(); lifetime.Stop() }()
	for {
		select {
		case <-t.closed:
			return
		case <-hello.C:
			if !t.hasHello() {
				t.refuse(refusalf(http.StatusForbidden, reasonHelloTimeout, "no TLS ClientHello within %s", limits.Hello))
			}
		case <-idle.C:
			left := limits.Idle - time.Since(time.Unix(0, t.lastActive.Load()))
			if left <= 0 {
				_ = t.Close()
			}
			idle.Reset(left)
		case <-lifetime.C:
			_ = t.Close()
		}
	}
}

func (t *tunnel) hasHello() bool {
	select {
	case <-t.verified:
		return true
	default:
		return false
	}
}

// Read waits until the ClientHello is verified.
func (t *tunnel) Read(p []byte) (int, error) {
	select {
	case <-t.verified:
	case <-t.closed:
		return 0, net.ErrClosed
	}
	n, err := t.tcp.Read(p)
	t.touch()
	return n, err
}

// Write forwards data after the ClientHello, and buffers earlier data.
func (t *tunnel) Write(p []byte) (int, error) {
	t.touch()
	if t.hasHello() {
		return t.tcp.Write(p)
	}
	t.hello.Write(p)
	complete, refused := t.checkHello()
	if refused != nil {
		t.refuse(refused)
		return 0, refused
	}
	if !complete {
		return len(p), nil
	}
	data := t.hello.Bytes()
	t.hello = bytes.Buffer{}
	close(t.verified)
	if _, err := t.tcp.Write(data); err != nil {
		return 0, err
	}
	return len(p), nil
}

// checkHello reports whether the ClientHello is complete and for the host of the tunnel.
func (t *tunnel) checkHello() (complete bool, refused *refusal) {
	complete, err := isHelloComplete(t.hello.Bytes())
	if err == nil && !complete && t.hello.Len() > maxHelloBytes {
		err = errHelloTooLong
	}
	if err == nil && !complete {
		return false, nil
	}
	name := ""
	if err == nil {
		name, err = parseServerName(t.hello.Bytes())
	}
	switch {
	case err != nil:
		return false, refusalf(http.StatusForbidden, reasonNoTLS, "%s", err)
	case !strings.EqualFold(name, t.host):
		return false, refusalf(http.StatusForbidden, reasonNameMismatch, "the TLS server name %q is not the host of CONNECT", name)
	}
	return true, nil
}

// CloseWrite is called when the session has sent everything.
func (t *tunnel) CloseWrite() error {
	if !t.hasHello() {
		t.refuse(refusalf(http.StatusForbidden, reasonNoTLS, "the connection ended before a complete TLS ClientHello"))
		return net.ErrClosed
	}
	return t.tcp.CloseWrite()
}

// CloseRead is called when the host has sent everything.
func (t *tunnel) CloseRead() error { return t.tcp.CloseRead() }

// refuse records a refusal of an open tunnel, and closes it.
func (t *tunnel) refuse(refused *refusal) {
	select {
	case <-t.closed:
	default:
		t.proxy.refusals.record(t.session.Namespace, &t.session, t.host, refused)
	}
	_ = t.Close()
}

// Close implements net.Conn.
func (t *tunnel) Close() error {
	err := error(nil)
	t.closeOnce.Do(func() {
		close(t.closed)
		t.proxy.removeTunnel(t)
		err = t.tcp.Close()
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
