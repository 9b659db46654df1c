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

// Flood sends the text again and again, up to HugeSize bytes.
func Flood(conn io.Writer, text string) {
	block := []byte(strings.Repeat(text, 1+64<<10/len(text)))
	for sent := 0; sent < HugeSize; sent += len(block) {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

// Dribble sends one byte after another, for longer than any timeout.
func Dribble(conn io.Writer, text string) {
	for i := 0; ; i++ {
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
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

// SendThenFlood sends a text once and another one again and again.
func SendThenFlood(start, text string) Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, start)
		Flood(conn, text)
	}
}

// Dribbled sends a text byte by byte.
func Dribbled(text string) Attack { return func(conn net.Conn) { Dribble(conn, text) } }
