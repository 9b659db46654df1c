package ports

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestServersCanListenOnAReservedPortAndAgainAfterTheyStop(t *testing.T) {
	address := Reserve(t).String()
	for range 3 {
		_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connecting without a server: %v", err)
		}
		server := listen(t, address)
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = accepted.Close(), connection.Close(), server.Close()
	}
}

// The number of attempts is several times the number of ports of which the system selects one.
func TestAReservedPortIsNotReservedAgain(t *testing.T) {
	reserved := Reserve(t).Port()
	for range 50_000 {
		port, release, err := reserve()
		if err != nil {
			t.Fatal(err)
		}
		if port == reserved {
			t.Fatal("the port was reserved again")
		}
		release()
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
