// Package sessionsocket connects the containers of a session's Pod through Unix sockets in a volume that the agent's container mounts
// read-only.
package sessionsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// listenTimeout is how long a client waits until the server listens.
	listenTimeout = time.Minute
	dialInterval  = 20 * time.Millisecond
	// mode of the socket: the agent's container may have another user, and only the Pod has the volume.
	mode = 0o777
)

// Listen listens on a socket, also after a restart of the container.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	_ = os.Remove(path) // left by the container before a restart
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, mode)
}

// Dial connects to a socket. Kubernetes starts the runner as soon as the container with the server runs, which may not listen yet,
// and the container may restart.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, listenTimeout)
	defer stop()
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return connection, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no container listens on %s: %w", path, err)
		case <-time.After(dialInterval):
		}
	}
}
