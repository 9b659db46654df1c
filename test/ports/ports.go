// Package ports reserves ports for the servers of tests.
package ports

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// Reserve returns a port of 127.0.0.1 that refuses connections until a server of the test listens on it. Until the test
// ends, the system gives the port to nobody who does not ask for its number, also while the server is stopped.
//
// The reservation is a socket that is bound to the port on all addresses and does not listen. Linux lets another socket
// listen on the port if both have the option SO_REUSEADDR, as servers do to start again soon after they stopped. A port
// that was found by closing a listener can be in use before its server starts.
func Reserve(t testing.TB) netip.AddrPort {
	t.Helper()
	port, release, err := reserve()
	if err != nil {
		t.Fatalf("reserving a port: %v", err)
	}
	t.Cleanup(release)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

func reserve() (port uint16, release func(), err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = syscall.Close(socket) }
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, nil, err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{}); err != nil {
		return 0, nil, err
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, nil, err
	}
	bound, isIPv4 := address.(*syscall.SockaddrInet4)
	if !isIPv4 {
		return 0, nil, fmt.Errorf("the address is a %T", address)
	}
	return uint16(bound.Port), release, nil //nolint:gosec // ports have 16 bits
}
