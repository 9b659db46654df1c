// Package listener limits the open connections of a server to which any Pod can connect. Unproven connections, whose peer has not
// proved that it is entitled to connect, have a lower limit. At this limit, a new connection replaces the oldest connection of the
// host with the most connections, so that idle or slow peers do not exclude others, such as the API server or the kubelet.
package listener

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// readBuffer is the kernel's receive buffer of a connection. By default it grows to several megabytes, which peers that flood a
// connection would fill at the expense of the node.
const readBuffer = 64 << 10

// Limits are the maximum numbers of open connections.
type Limits struct {
	// Total is for all connections, Unproven for unproven connections.
	Total, Unproven int
}

// Listener limits the number of open connections.
type Listener struct {
	net.Listener
	limits  Limits
	refused func()

	mu            sync.Mutex
	open          int
	unproven      map[string]*list.List // by host; of *connection, oldest first
	unprovenTotal int
}

// New returns a Listener. It calls refused for each connection that it refuses or closes.
func New(listener net.Listener, limits Limits, refused func()) *Listener {
	return &Listener{Listener: listener, limits: limits, refused: refused, unproven: map[string]*list.List{}}
}

type connection struct {
	net.Conn

	listener *Listener
	host     string
	element  *list.Element // in listener.unproven; nil once the connection is proven
	closed   bool
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, is := accepted.(*net.TCPConn); is {
			_ = tcp.SetReadBuffer(readBuffer) // without it, the connection works too
		}
		if c := l.add(accepted); c != nil {
			return c, nil
		}
		l.refused()
		_ = accepted.Close()
	}
}

// add returns nil if all connections are proven.
func (l *Listener) add(accepted net.Conn) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limits.Total || l.unprovenTotal >= l.limits.Unproven {
		replaced := l.oldestOfBusiestHost()
		if replaced == nil {
			return nil
		}
		l.refused()
		l.remove(replaced)
		_ = replaced.Conn.Close()
	}
	host, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
	if err != nil {
		host = ""
	}
	c := &connection{Conn: accepted, listener: l, host: host}
	if l.unproven[c.host] == nil {
		l.unproven[c.host] = list.New()
	}
	c.element = l.unproven[c.host].PushBack(c)
	l.unprovenTotal++
	l.open++
	return c
}

// oldestOfBusiestHost requires the lock.
func (l *Listener) oldestOfBusiestHost() *connection {
	var busiest *list.List
	for _, connections := range l.unproven {
		if busiest == nil || connections.Len() > busiest.Len() {
			busiest = connections
		}
	}
	if busiest == nil {
		return nil
	}
	oldest, _ := busiest.Front().Value.(*connection)
	return oldest
}

// remove requires the lock.
func (l *Listener) remove(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	l.open--
	l.markProven(c)
}

// markProven requires the lock.
func (l *Listener) markProven(c *connection) {
	if c.element == nil {
		return
	}
	connections := l.unproven[c.host]
	connections.Remove(c.element)
	c.element = nil
	l.unprovenTotal--
	if connections.Len() == 0 {
		delete(l.unproven, c.host)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending half of a TCP connection.
func (c *connection) CloseWrite() error {
	if half, is := c.Conn.(*net.TCPConn); is {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// CloseRead closes the receiving half of a TCP connection.
func (c *connection) CloseRead() error {
	if half, is := c.Conn.(*net.TCPConn); is {
		return half.CloseRead()
	}
	return errors.ErrUnsupported
}

type connectionKey struct{}

// WithConnection makes the connection of a request available to Prove. It is the ConnContext of an http.Server.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// Prove records that a request has proved that its peer is entitled to connect. The connection is then never replaced.
func Prove(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.markProven(c)
	}
}
