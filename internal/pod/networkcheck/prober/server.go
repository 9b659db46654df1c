package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/listener"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
)

// greeting is the text that the server sends. A service mesh may accept a connection for a server that it does not reach, so only the
// greeting shows that the server was reached.
const greeting = "yardmaster network check\n"

const (
	// greetTimeout limits a connection. The greeting fits into the kernel's buffer.
	greetTimeout = 5 * time.Second
	// maxConnections bounds the concurrent connections of one port.
	maxConnections = 256
)

// Server greets each peer that connects to one of its addresses. It reads nothing.
type Server struct {
	// ControlAddress and DeniedAddress are the addresses to listen on, such as ":9446".
	ControlAddress, DeniedAddress string
}

// NewServer returns a Server on both ports of all addresses.
func NewServer() *Server {
	return &Server{ControlAddress: fmt.Sprintf(":%d", networkcheck.ControlPort), DeniedAddress: fmt.Sprintf(":%d", networkcheck.DeniedPort)}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas greet.
func (*Server) NeedLeaderElection() bool { return false }

// Start greets until ctx ends. It implements manager.Runnable. A check that reaches only the control port takes the denied port for
// denied by a policy, so the control port is the first to stop and the last to start.
func (s *Server) Start(ctx context.Context) error {
	denied, err := listen(ctx, s.DeniedAddress)
	if err != nil {
		return err
	}
	defer denied.Close()
	control, err := listen(ctx, s.ControlAddress)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		serve(denied)
	}()
	stopControl := context.AfterFunc(ctx, func() { _ = control.Close() })
	defer stopControl()
	serve(control)
	_ = denied.Close()
	<-stopped
	return nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for network checks: %w", err)
	}
	return tcp, nil
}

// serve accepts connections until the listener is closed.
func serve(tcp net.Listener) {
	connections := listener.New(tcp, listener.Limits{Total: maxConnections, Unproven: maxConnections}, func() {})
	for {
		connection, err := connections.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the peer is gone, or the process has too many open files
			time.Sleep(acceptDelay)
		default:
			go greet(connection)
		}
	}
}

// acceptDelay is the pause after an error, which may last.
const acceptDelay = 100 * time.Millisecond

func greet(connection net.Conn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(greetTimeout))
	_, _ = connection.Write([]byte(greeting)) // the client notices an incomplete greeting
}
