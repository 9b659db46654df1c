// Package forward joins TCP connections. The listener may belong to another network
// namespace than the process: a socket stays in the namespace in which it was created.
package forward

import (
	"errors"
	"io"
	"log"
	"net"
)

// Serve copies each connection that listener accepts to and from target, until
// the listener is closed.
func Serve(listener net.Listener, target string) error {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go join(client, target)
	}
}

func join(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		log.Printf("forwarding: %v", err)
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyAndClose(server, client)
	}()
	copyAndClose(client, server)
	<-done
}

// copyAndClose passes on the end of a stream too: the other direction may have
// more to say, as in kubectl exec with its input closed.
func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from) // an error here is a closed connection, seen by both ends
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}
