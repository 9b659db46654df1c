// Package hostile contains peers that attack the operator: brokers, backlog sources and workers that
// answer its requests, and Pods that connect to its ports. Unit tests run them in their own process,
// the end-to-end tests in Pods.
package hostile

import (
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"
)

// HugeSize is the size of a reply that is larger than the operator's memory.
const HugeSize = 600 << 20

// Attack is what a server does with a connection. It ends when its peer closes the connection.
type Attack func(net.Conn)

// All returns the attacks of all brokers and sources.
func All() map[string]Attack {
	all := map[string]Attack{}
	for title, broker := range Brokers() {
		all[title] = broker.Attack
	}
	for title, source := range Sources() {
		all[title] = source.Attack
	}
	return all
}

// firstPort is the port of the first attack.
const firstPort = 20000

// Port returns the port at which the Pod of the end-to-end tests serves an attack of All.
func Port(title string) int {
	i, found := slices.BinarySearch(slices.Sorted(maps.Keys(All())), title)
	if !found {
		panic("unknown attack " + title)
	}
	return firstPort + i
}

// Serve runs an attack on each connection of the listener.
func Serve(listener net.Listener, attack Attack) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			attack(conn)
		}()
	}
}

// AfterRequest waits for bytes from the client.
func AfterRequest(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

// Send sends a text and keeps the connection open.
func Send(text string) Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// SendAndClose sends a text and closes the connection.
func SendAndClose(text string) Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// SendThenFlood sends a text once, and another one again and again, up to HugeSize bytes.
func SendThenFlood(start, text string) Attack {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, start)
		block := []byte(strings.Repeat(text, 1+64<<10/len(text)))
		for sent := 0; sent < HugeSize && err == nil; sent += len(block) {
			_, err = conn.Write(block)
		}
	}
}

// SendThenDribble sends a text once, and the bytes of another one slowly, for longer than any timeout.
func SendThenDribble(start, text string) Attack {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, start)
		for i := 0; err == nil; i++ {
			_, err = conn.Write([]byte{text[i%len(text)]})
			time.Sleep(100 * time.Millisecond)
		}
	}
}
