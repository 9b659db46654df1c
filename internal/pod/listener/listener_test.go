package listener

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inner.Close() })
	l := &testListener{t: t}
	l.listener = New(inner, limits, func() { l.refused++ })
	return l
}

// connect opens a connection from a loopback address.
func (l *testListener) connect(host string) (client, server net.Conn) {
	l.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	client, err := dialer.DialContext(l.t.Context(), "tcp", l.listener.Addr().String())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = client.Close() })
	server, err = l.listener.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// isOpen writes a byte at the server's side and reads it.
func (l *testListener) isOpen(client, server net.Conn) bool {
	l.t.Helper()
	if _, err := server.Write([]byte{1}); err != nil {
		return false
	}
	if err := client.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		l.t.Fatal(err)
	}
	_, err := io.ReadFull(client, make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatal(err)
	}
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
	if l.isOpen(first, firstServer) {
		t.Error("the oldest connection of the busiest host is open")
	}
	if !l.isOpen(second, secondServer) || !l.isOpen(kubelet, probe) {
		t.Error("another connection was closed")
	}
	if l.refused != 1 {
		t.Errorf("%d connections were refused", l.refused)
	}
}

func TestProvenConnectionsAreNeverReplaced(t *testing.T) {
	l := newTestListener(t, Limits{Total: limit, Unproven: limit})
	clients, servers := make([]net.Conn, limit), make([]net.Conn, limit)
	for i := range limit {
		clients[i], servers[i] = l.connect("127.0.0.2")
		Prove(WithConnection(context.Background(), servers[i]))
	}
	refused, err := net.Dial("tcp", l.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	accepted := make(chan net.Conn)
	go func() {
		c, _ := l.listener.Accept()
		accepted <- c
	}()
	if err := refused.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection beyond the limit: %v", err)
	}
	for i := range limit {
		if !l.isOpen(clients[i], servers[i]) {
			t.Errorf("connection %d was closed", i)
		}
	}
	// A closed one makes room.
	_ = servers[0].Close()
	dialed, err := net.Dial("tcp", l.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	if c := <-accepted; c == nil {
		t.Error("no connection was accepted")
	} else {
		_ = c.Close()
	}
}

func TestConnectionsThatAreNotProvenHaveALowerLimit(t *testing.T) {
	l := newTestListener(t, Limits{Total: limit, Unproven: unprovenLimit})
	first, firstServer := l.connect("127.0.0.2")
	second, secondServer := l.connect("127.0.0.2")
	Prove(WithConnection(context.Background(), firstServer))
	for range unprovenLimit - 1 {
		l.connect("127.0.0.2")
	}
	if !l.isOpen(second, secondServer) {
		t.Error("a connection below the limit was closed")
	}
	l.connect("127.0.0.2")
	if l.isOpen(second, secondServer) {
		t.Error("the oldest connection that is not proven is open")
	}
	if !l.isOpen(first, firstServer) {
		t.Error("the proven connection was closed")
	}
}
