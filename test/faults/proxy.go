package faults

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/hostile"
)

// Proxy is between a client and a real server, and makes the server fail for this client. To the server, the client
// seems to fail: one whose connection hangs or disappears is like a process that does.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	server   string

	mu    sync.Mutex
	fault Fault
	// repaired wakes connections that hang.
	repaired    *sync.Cond
	connections map[net.Conn]bool
}

// slowAnswer is the additional time of each answer of a slow server.
const slowAnswer = 200 * time.Millisecond

const garbage = "\x00\xff}{ \r\n\r\n"

// StartProxy returns a proxy in front of a server, whose address is host:port. It runs until the test ends.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, listener: listener, server: server, connections: map[net.Conn]bool{}}
	p.repaired = sync.NewCond(&p.mu)
	go hostile.Serve(listener, p.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Set(Disappears)
	})
	return p
}

// Address returns host:port of the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set makes the server fail until the next call of Set or Repair. When it returns, no more bytes pass as before.
func (p *Proxy) Set(fault Fault) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch fault {
	case NeverStarts, StartsLate, Disappears:
		for connection := range p.connections {
			_ = connection.Close()
		}
	case Hangs, AnswersSlowly, AnswersWithGarbage, AnswersTwice, "":
	default:
		p.t.Errorf("a proxy cannot make a server that %s", fault)
	}
	p.fault = fault
	p.repaired.Broadcast()
}

// Repair makes the server answer. Those bytes pass that could not while it hung.
func (p *Proxy) Repair() {
	p.t.Helper()
	p.Set("")
}

// isGone reports whether the server refuses connections. It requires the lock.
func (p *Proxy) isGone() bool {
	return p.fault == NeverStarts || p.fault == StartsLate || p.fault == Disappears
}

// serve forwards a connection of a client until one side closes it.
func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server) //nolint:noctx // it is closed with the client
	if err != nil {
		return
	}
	p.mu.Lock()
	if p.isGone() {
		p.mu.Unlock()
		_ = server.Close()
		return
	}
	p.connections[client], p.connections[server] = true, true
	p.mu.Unlock()
	var directions sync.WaitGroup
	directions.Go(func() { p.forward(server, client, false) })
	directions.Go(func() { p.forward(client, server, true) })
	directions.Wait()
	p.mu.Lock()
	delete(p.connections, client)
	delete(p.connections, server)
	p.mu.Unlock()
}

// forward forwards one direction, and closes both sides when it ends.
func (p *Proxy) forward(to, from net.Conn, areAnswers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.send(to, buffer[:n], areAnswers) || err != nil {
			return
		}
	}
}

// send sends bytes as the fault requires, and reports whether the connection can continue.
func (p *Proxy) send(to net.Conn, bytes []byte, areAnswers bool) bool {
	p.mu.Lock()
	if areAnswers && p.fault == AnswersSlowly {
		p.mu.Unlock()
		time.Sleep(slowAnswer)
		p.mu.Lock()
	}
	for p.fault == Hangs {
		p.repaired.Wait()
	}
	defer p.mu.Unlock()
	if p.isGone() {
		return false
	}
	if areAnswers && p.fault == AnswersWithGarbage {
		bytes = []byte(garbage)
	}
	_, err := to.Write(bytes)
	if err == nil && areAnswers && p.fault == AnswersTwice {
		_, err = to.Write(bytes)
	}
	return err == nil
}
