package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/poll"
)

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
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// WaitForFailover is called when the master does not answer. It returns when all Sentinels call the replica the master,
// and it is one.
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
