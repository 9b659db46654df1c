// Package sandbox isolates a node in its own namespaces, in which mounts, interfaces
// and sysctls change nothing outside. Everything ends with the namespaces' pid 1, except
// for the control group, which belongs to no namespace.
package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Namespaces are those that pid 1 is cloned into.
const Namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// Sandbox describes what is visible inside.
type Sandbox struct {
	Hostname string
	Address  string // the node's, with the length of its prefix
	Services string // the addresses of Services, with the length of their prefix

	// Visible maps paths inside to directories outside: directories below a
	// hidden one, or whose path may be too long for a unix socket.
	Visible map[string]string
}

// Enter sets up this process's namespaces, of which it is pid 1.
func (s Sandbox) Enter() error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("setting the node's host name: %w", err)
	}
	if err := s.mount(); err != nil {
		return err
	}
	return s.connect()
}
