// Package redistest runs a real Redis server for tests.
package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Server is a running server.
type Server struct {
	t    testing.TB
	dir  string
	port string
	// arguments of redis-server.
	arguments []string
	process   *exec.Cmd
	output    *bytes.Buffer
}

// Start runs redis-server until the test ends, with settings of its command line.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing. Please install it: hack/prerequisites %s=redis-server", program, program)
		}
	}
	s := &Server{t: t, dir: t.TempDir(), port: FreePort(t)}
	s.arguments = append([]string{
		"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
	}, settings...)
	s.run()
	t.Cleanup(s.Stop)
	return s
}

// FreePort returns a port that no server uses.
func FreePort(t testing.TB) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// startTimeout bounds the start of a server.
const startTimeout = 20 * time.Second

func (s *Server) run() {
	s.t.Helper()
	s.output = &bytes.Buffer{}
	s.process = exec.CommandContext(context.Background(), "redis-server", s.arguments...)
	s.process.Stdout, s.process.Stderr = s.output, s.output
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(10 * time.Millisecond) {
		if s.isReady() {
			return
		}
		if time.Now().After(deadline) {
			s.Stop()
			s.t.Fatalf("redis-server does not start: %s", s.output)
		}
	}
}

// isReady reports whether the server answers, which it does not while it loads its files.
func (s *Server) isReady() bool {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.Address())
	if err != nil {
		return false
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
		return false
	}
	// A server with a password answers NOAUTH.
	answer, err := bufio.NewReader(connection).ReadString('\n')
	return err == nil && !strings.HasPrefix(answer, "-LOADING")
}

// Address returns host:port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Address() }

// Signal sends a signal to the process, such as one that suspends it.
func (s *Server) Signal(signal os.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// Stop stops the server and keeps its files.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(os.Interrupt)
	_ = s.process.Wait()
	s.process = nil
}

// Restart stops the server if it runs, and starts it at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.run()
}

// RunCLI returns the output of a redis-cli command.
func (s *Server) RunCLI(arguments ...string) string {
	s.t.Helper()
	output, err := exec.CommandContext(s.t.Context(), "redis-cli", append([]string{"-p", s.port}, arguments...)...).Output()
	if err != nil {
		stderr := ""
		if failure := (*exec.ExitError)(nil); errors.As(err, &failure) {
			stderr = string(failure.Stderr)
		}
		s.t.Fatalf("redis-cli %v: %v %s", arguments, err, stderr)
	}
	return strings.TrimSpace(string(output))
}

// RunCLIForNumber returns the output of a redis-cli command as a number.
func (s *Server) RunCLIForNumber(arguments ...string) int64 {
	s.t.Helper()
	said := s.RunCLI(arguments...)
	number, err := strconv.ParseInt(said, 10, 64)
	if err != nil {
		s.t.Fatalf("redis-cli %v says %q", arguments, said)
	}
	return number
}
