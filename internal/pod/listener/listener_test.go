package listener

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

const limit, unprovenLimit = 6, 4

type testListener struct {
	t        *testing.T
	listener *Listener
	refused  int
}

func newTestListener(t *testing.T, limits Limits) *testListener {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = inner.Close() })
	l := &testListener{t: t}
	l.listener = New(inner, limits, func() { l.refused++ })
	return l
}

func (l *testListener) connect(host string) (client, server net.Conn) {
	l.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	client, err := dialer.DialContext(l.t.Context(), "tcp", l.listener.Addr().String())
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = client.Close() })
	server, err = l.listener.Accept()
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// isOpen writes a byte at the server's side and reads it.
func (l *testListener) isOpen(client, server net.Conn) bool {
	l.t.Helper()
	if _, err := server.Write([]byte{1}); err != nil {
		return false
	}
	require.NoError(l.t, client.SetReadDeadline(time.Now().Add(5*time.Minute)))
	_, err := io.ReadFull(client, make([]byte, 1))
	require.True(l.t, !errors.Is(err, os.ErrDeadlineExceeded), "no byte arrives: %v", err)
	return err == nil
}

func TestAtTheLimitTheOldestConnectionOfTheBusiestHostIsReplaced(t *testing.T) {
	l := newTestListener(t, Limits{Total: limit, Unproven: limit})
	kubelet, probe := l.connect("127.0.0.2") // the oldest
	first, firstServer := l.connect("127.0.0.3")
	second, secondServer := l.connect("127.0.0.3")
	for range limit - 3 {
		l.connect("127.0.0.3")
	}
	l.connect("127.0.0.4")
	require.True(t, !l.isOpen(first, firstServer), "the oldest connection of the busiest host is open")
	require.True(t, l.isOpen(second, secondServer) && l.isOpen(kubelet, probe), "another connection was closed")
	require.Equal(t, 1, l.refused)
}

func TestProvenConnectionsAreNeverReplaced(t *testing.T) {
	l := newTestListener(t, Limits{Total: limit, Unproven: limit})
	clients, servers := make([]net.Conn, limit), make([]net.Conn, limit)
	for i := range limit {
		clients[i], servers[i] = l.connect("127.0.0.2")
		Prove(WithConnection(context.Background(), servers[i]))
	}
	refused, err := net.Dial("tcp", l.listener.Addr().String())
	require.NoError(t, err)
	defer refused.Close()
	accepted := make(chan net.Conn)
	go func() {
		c, _ := l.listener.Accept()
		accepted <- c
	}()
	require.NoError(t, refused.SetReadDeadline(time.Now().Add(5*time.Minute)))
	_, err = refused.Read(make([]byte, 1))
	require.True(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "a connection beyond the limit: %v", err)
	for i := range limit {
		require.True(t, l.isOpen(clients[i], servers[i]), "connection %d was closed", i)
	}
	// A closed one makes room.
	_ = servers[0].Close()
	dialed, err := net.Dial("tcp", l.listener.Addr().String())
	require.NoError(t, err)
	defer dialed.Close()
	c := <-accepted
	require.True(t, c != nil, "no connection was accepted")
	_ = c.Close()
}

func TestConnectionsThatAreNotProvenHaveALowerLimit(t *testing.T) {
	l := newTestListener(t, Limits{Total: limit, Unproven: unprovenLimit})
	first, firstServer := l.connect("127.0.0.2")
	second, secondServer := l.connect("127.0.0.2")
	Prove(WithConnection(context.Background(), firstServer))
	for range unprovenLimit - 1 {
		l.connect("127.0.0.2")
	}
	require.True(t, l.isOpen(second, secondServer), "a connection below the limit was closed")
	l.connect("127.0.0.2")
	require.True(t, !l.isOpen(second, secondServer), "the oldest connection that is not proven is open")
	require.True(t, l.isOpen(first, firstServer), "the proven connection was closed")
}
