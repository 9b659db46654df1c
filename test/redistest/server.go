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

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
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
	s := &Server{t: t, dir: t.TempDir(), port: reservePort(t)}
	s.arguments = append([]string{
		"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
	}, settings...)
	s.run()
	t.Cleanup(s.Stop)
	return s
}

func reservePort(t testing.TB) string {
	t.Helper()
	return strconv.Itoa(int(ports.Reserve(t).Port()))
}

func (s *Server) run() {
	s.t.Helper()
	s.output = &bytes.Buffer{}
	s.process = exec.CommandContext(context.Background(), "redis-server", s.arguments...)
	s.process.Stdout, s.process.Stderr = s.output, s.output
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	if err := poll.UntilNil(s.t.Context(), s.ping); err != nil {
		s.Stop()
		s.t.Fatalf("redis-server does not start: %v: %s", err, s.output)
	}
}

// ping returns an error until the server answers, which it does not while it loads its files.
func (s *Server) ping() error {
	connection, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.Address())
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
		return err
	}
	// A server with a password answers NOAUTH.
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if strings.HasPrefix(answer, "-LOADING") {
		return errors.New(answer)
	}
	return err
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
