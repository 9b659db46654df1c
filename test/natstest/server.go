// Package natstest runs a real NATS server for tests, in the test process.
package natstest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// startTimeout bounds the start of a server, and loginTimeout that of a connection: a busy machine needs many times as
// long as an idle one.
const startTimeout, loginTimeout = 5 * time.Minute, time.Minute

// Server is a running server.
type Server struct {
	*server.Server
	t       testing.TB
	options server.Options
}

// Start runs a server with JetStream until the test ends.
func Start(t testing.TB, changes ...func(*server.Options)) *Server {
	t.Helper()
	s := &Server{t: t, options: server.Options{
		Host: "127.0.0.1", Port: int(ports.Reserve(t).Port()), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		AuthTimeout: loginTimeout.Seconds(), TLSTimeout: loginTimeout.Seconds(),
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
	require.NoError(s.t, err)
	running.Start()
	require.True(s.t, running.ReadyForConnections(startTimeout), "the server does not start")
	s.Server = running
}

// Options returns options that apply after the next Restart.
func (s *Server) Options() *server.Options { return &s.options }

// Address returns host:port, also after the server was stopped.
func (s *Server) Address() string {
	return net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// JetStream returns a client of the server, which is disconnected when the test ends.
func (s *Server) JetStream(options ...jetstream.JetStreamOpt) jetstream.JetStream {
	s.t.Helper()
	connection, err := nats.Connect(s.ClientURL(), nats.Timeout(startTimeout), nats.MaxReconnects(-1))
	require.NoError(s.t, err)
	s.t.Cleanup(connection.Close)
	js, err := jetstream.New(connection, append(options, jetstream.WithDefaultTimeout(startTimeout))...)
	require.NoError(s.t, err)
	return js
}

// Stop stops the server and keeps its files.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// Restart stops the server if it runs, and starts it at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.run()
}
