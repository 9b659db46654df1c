// Package redistest runs a real Redis server for tests.
package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
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
	require.NoError(s.t, s.process.Start())
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
	require.NoError(s.t, s.process.Process.Signal(signal))
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

// MasterName is the name under which Sentinels of tests monitor a server.
const MasterName = "main"

// Sentinels are three Sentinels that monitor a server with one replica.
type Sentinels struct {
	Master, Replica *Server
	Sentinels       []*Server
	t               testing.TB
}

// StartSentinels runs a server, a replica of it and three Sentinels until the test ends. It returns when the
// Sentinels can replace the server by the replica. The settings are lines of their configuration files.
func StartSentinels(t testing.TB, settings ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{t: t, Master: Start(t)}
	s.Replica = Start(t, "--replicaof", "127.0.0.1", s.Master.port)
	poll.Until(t, "the replica to have all data", func() bool {
		return strings.Contains(s.Master.RunCLI("INFO", "replication"), "state=online")
	})
	for range 3 {
		s.Sentinels = append(s.Sentinels, StartSentinel(t, s.Master.port, 2, settings...))
	}
	poll.Until(t, "the Sentinels to know each other and the replica", func() bool {
		for _, sentinel := range s.Sentinels {
			state := sentinel.RunCLI("INFO", "sentinel")
			if !strings.Contains(state, "slaves=1,sentinels=3") || !strings.Contains(state, "status=ok") {
				return false
			}
		}
		return true
	})
	return s
}

// StartSentinel runs a Sentinel that monitors the server at a local port, until the test ends.
func StartSentinel(t testing.TB, masterPort string, quorum int, settings ...string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), port: reservePort(t)}
	lines := append([]string{
		"port " + s.port, "bind 127.0.0.1", "dir " + s.dir,
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d", MasterName, masterPort, quorum),
		// Long, so that no busy server is replaced. WaitForFailover shortens it.
		"sentinel " + downAfter + " " + MasterName + " 600000", "sentinel failover-timeout " + MasterName + " 3000",
	}, settings...)
	file := filepath.Join(s.dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	s.arguments = []string{file, "--sentinel"}
	s.run()
	t.Cleanup(s.Stop)
	return s
}

// URL names all Sentinels.
func (s *Sentinels) URL() string {
	var all []string
	for _, sentinel := range s.Sentinels {
		all = append(all, sentinel.URL())
	}
	return strings.Join(all, ",")
}

// downAfter is the setting how long a server must be silent until a Sentinel considers it down, in milliseconds.
const downAfter = "down-after-milliseconds"

// WaitForFailover is called when the master does not answer. It returns when all Sentinels call the replica the master, and it is one.
func (s *Sentinels) WaitForFailover() {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		sentinel.RunCLI("SENTINEL", "SET", MasterName, downAfter, "500")
	}
	poll.Until(s.t, "the replica to be the master", func() bool {
		for _, sentinel := range s.Sentinels {
			if !strings.HasSuffix(sentinel.RunCLI("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName), s.Replica.port) {
				return false
			}
		}
		return strings.HasPrefix(s.Replica.RunCLI("ROLE"), "master")
	})
}
