package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// boundedListener limits the number of open connections. At the limit, a new connection replaces the
// oldest one that has not sent a valid path, so that idle peers cannot exclude the API server.
type boundedListener struct {
	net.Listener
	limit int

	mu       sync.Mutex
	open     int
	unproven list.List // of *connection, oldest first
}

func newBoundedListener(listener net.Listener, limit int) *boundedListener {
	return &boundedListener{Listener: listener, limit: limit}
}

// connection is an open connection of a boundedListener.
type connection struct {
	net.Conn

	listener *boundedListener
	element  *list.Element // in listener.unproven; nil once the peer has sent a valid path
	closed   bool
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.add(accepted); c != nil {
			return c, nil
		}
		refused.WithLabelValues(reasonConnections).Inc()
		_ = accepted.Close()
	}
}

// add returns nil if all connections are in use by callers that have sent a valid path.
func (l *boundedListener) add(accepted net.Conn) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limit {
		oldest := l.unproven.Front()
		if oldest == nil {
			return nil
		}
		refused.WithLabelValues(reasonConnections).Inc()
		replaced, _ := oldest.Value.(*connection)
		l.remove(replaced)
		_ = replaced.Conn.Close()
	}
	c := &connection{Conn: accepted, listener: l}
	c.element = l.unproven.PushBack(c)
	l.open++
	return c
}

// remove requires the lock.
func (l *boundedListener) remove(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	l.open--
	l.markProven(c)
}

// markProven requires the lock.
func (l *boundedListener) markProven(c *connection) {
	if c.element != nil {
		l.unproven.Remove(c.element)
		c.element = nil
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type connectionKey struct{}

// withConnection makes the connection available to proveConnection.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// proveConnection records that the peer has sent a valid path on the connection of a request.
func proveConnection(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.markProven(c)
	}
}
