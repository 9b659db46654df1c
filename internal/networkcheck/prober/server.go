package prober

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/internal/listener"
	"github.com/yardmaster/yardmaster/internal/networkcheck"
)

// greeting is what the server sends. A service mesh may accept a connection on behalf of a server that it does not
// reach, so only the greeting shows that the server was reached.
const greeting = "yardmaster network check\n"

const (
	// greetTimeout limits a connection. The greeting fits into the kernel's buffer.
	greetTimeout = 5 * time.Second
	// maxConnections are those that one port has at the same time.
	maxConnections = 256
)

// Server greets everyone who connects to one of its addresses. It reads nothing.
type Server struct {
	// Addresses to listen on, such as ":9446".
	Addresses []string
}

// NewServer returns a Server on both ports of all addresses.
func NewServer() *Server {
	return &Server{Addresses: []string{fmt.Sprintf(":%d", networkcheck.ControlPort), fmt.Sprintf(":%d", networkcheck.DeniedPort)}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas greet.
func (*Server) NeedLeaderElection() bool { return false }

// Start greets until ctx ends. It implements manager.Runnable.
func (s *Server) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, address := range s.Addresses {
		group.Go(func() error { return serve(ctx, address) })
	}
	return group.Wait()
}

// serve accepts connections until ctx ends.
func serve(ctx context.Context, address string) error {
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for network checks: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = tcp.Close() })()
	connections := listener.New(tcp, listener.Limits{Total: maxConnections, Unproven: maxConnections}, func() {})
	for ctx.Err() == nil {
		connection, err := connections.Accept()
		if err != nil { // the peer is gone, the process has too many open files, or ctx has ended
			select {
			case <-ctx.Done():
			case <-time.After(acceptDelay):
			}
			continue
		}
		go greet(connection)
	}
	return nil
}

// acceptDelay is the pause after an error, which may last.
const acceptDelay = 100 * time.Millisecond

func greet(connection net.Conn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(greetTimeout))
	_, _ = connection.Write([]byte(greeting)) // the client notices what is missing
}
