// Package natstest runs a NATS server for tests: the real one, in this process.
package natstest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a running server.
type Server struct {
	*server.Server
	t       testing.TB
	options server.Options
}

// Start starts a server with JetStream that keeps its files for as long as the test
// lasts. Options that change it are applied before.
func Start(t testing.TB, changes ...func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	for _, change := range changes {
		change(&s.options)
	}
	s.run()
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) run() {
	s.t.Helper()
	options := s.options
	running, err := server.NewServer(&options)
	if err != nil {
		s.t.Fatal(err)
	}
	running.Start()
	if !running.ReadyForConnections(10 * time.Second) {
		s.t.Fatal("the server does not start")
	}
	s.Server = running
	s.options.Port = options.Port
}

// Options can be changed before the server is restarted.
func (s *Server) Options() *server.Options { return &s.options }

// Address is host and port, those it had once it is stopped.
func (s *Server) Address() string {
	return net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// Stop stops the server. Its files stay.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// Restart stops the server, if it runs, and starts it at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.run()
}
