// Package sandbox makes the machine that a node believes to be: namespaces of
// its own, in which mounts, interfaces and sysctls change nothing outside. All
// of it ends with the namespaces' pid 1, and nothing is left to undo but the
// control group, which no namespace holds.
package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Namespaces are those that pid 1 is cloned into.
const Namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// Sandbox says what is seen inside.
type Sandbox struct {
	Hostname string
	Address  string // the node's, with the length of its prefix
	Services string // the addresses of Services, with the length of their prefix

	// Visible maps places inside to directories outside: those that must be
	// found although what lies above them is hidden, or whose own path may be
	// too long for a unix socket.
	Visible map[string]string
}

// Enter sets up this process's namespaces, of which it is pid 1.
func (s Sandbox) Enter() error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("naming the node: %w", err)
	}
	if err := s.mount(); err != nil {
		return err
	}
	return s.connect()
}
