package rabbitmq

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// rabbitMQBinDir is where Debian's package installs the programs. The wrappers in /usr/sbin need the user rabbitmq.
const rabbitMQBinDir = "/usr/lib/rabbitmq/bin/"

// fastStatisticsConfig makes the management API report changes within a second. Its interval is the sample retention interval, 5 seconds by default.
const fastStatisticsConfig = "management.sample_retention_policies.global.minute = 1\n" +
	"management.sample_retention_policies.basic.minute = 1\nmanagement.sample_retention_policies.detailed.minute = 1\n"

// rabbitMQServer is a real RabbitMQ with its management API.
type rabbitMQServer struct {
	t               *testing.T
	amqp, api, epmd string
	environment     []string
}

func startServer(t *testing.T) *rabbitMQServer {
	t.Helper()
	for _, program := range []string{rabbitMQBinDir + "rabbitmq-server", "epmd"} {
		_, err := exec.LookPath(program)
		require.True(t, err == nil, "%s is missing. Please install it: hack/prerequisites rabbitmq-server=rabbitmq-server", program)
	}
	reserve := func() string { return strconv.Itoa(int(ports.Reserve(t).Port())) }
	dir, management, distribution := t.TempDir(), reserve(), reserve()
	s := &rabbitMQServer{t: t, amqp: reserve(), api: "http://127.0.0.1:" + management, epmd: reserve()}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	s.environment = append(os.Environ(),
		"HOME="+dir, "RABBITMQ_NODENAME=test-"+s.amqp+"@localhost", "RABBITMQ_DIST_PORT="+distribution, "ERL_EPMD_PORT="+s.epmd,
		"RABBITMQ_CONFIG_FILE="+write("rabbitmq.conf", fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%s\nmanagement.tcp.ip = 127.0.0.1\n"+
			"management.tcp.port = %s\ncollect_statistics_interval = 500\n"+fastStatisticsConfig, s.amqp, management)),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+write("enabled_plugins", "[rabbitmq_management].\n"),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "db"), "RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"), "RABBITMQ_LOGS=-",
	)
	s.startProcess()
	return s
}

func (s *rabbitMQServer) startProcess() {
	s.t.Helper()
	output := &bytes.Buffer{}
	process := exec.CommandContext(context.Background(), rabbitMQBinDir+"rabbitmq-server")
	process.Env, process.Stdout, process.Stderr = s.environment, output, output
	// The script starts other processes, which are killed as a group; no state needs to be kept.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s.t, process.Start())
	s.t.Cleanup(func() {
		_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL)
		_ = process.Wait()
		names := exec.CommandContext(context.Background(), "epmd", "-port", s.epmd, "-kill")
		names.Env = s.environment
		_ = names.Run()
	})
	// The management API may answer before the server accepts clients.
	err := poll.UntilNil(s.t.Context(), func() error {
		response, err := http.Get(s.api)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		connection, err := amqp.Dial(s.address())
		if err != nil {
			return err
		}
		return connection.Close()
	})
	require.True(s.t, err == nil, "RabbitMQ does not start: %v: %s", err, output)
}

func (s *rabbitMQServer) address() string { return "amqp://guest:guest@127.0.0.1:" + s.amqp }

func (s *rabbitMQServer) openChannel(queue string) *amqp.Channel {
	s.t.Helper()
	connection := require.Call(amqp.Dial(s.address())).Succeeds(s.t)
	s.t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err == nil {
		_, err = channel.QueueDeclare(queue, false, false, false, false, nil)
	}
	require.NoError(s.t, err)
	return channel
}

func readQueue(t *testing.T, access broker.Credentials, vhost, name string) (backlog.Reading, error) {
	t.Helper()
	q, err := NewQueueSource(access, vhost, name)
	if err != nil {
		return backlog.Reading{}, err
	}
	defer q.Disconnect()
	return q.Read(t.Context())
}

func TestReadingMatchesRabbitMQ(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	guest := broker.Credentials{URL: s.api, Username: "guest", Password: "guest"}
	name := "jobs/of a day?" // a name that needs escaping
	channel := s.openChannel(name)
	for n := range 5 {
		require.NoError(t, channel.PublishWithContext(t.Context(), "", name, false, false, amqp.Publishing{Body: fmt.Append(nil, n)}))
	}
	waitForReading := func(waiting, inFlight int64) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("%d to wait, and %d to be in flight", waiting, inFlight), func() bool {
			r, err := readQueue(t, guest, "/", name)
			return err == nil && r.Backlog == waiting && *r.InFlight == inFlight && r.TotalArrivals != nil && *r.TotalArrivals == 5
		})
	}
	waitForReading(5, 0)
	for range 2 {
		_, found, err := channel.Get(name, false)
		require.True(t, err == nil && found, "%t: %v", found, err)
	}
	waitForReading(3, 2)
	require.NoError(t, channel.Ack(2, true))
	waitForReading(3, 0)

	for title, row := range map[string]struct {
		access      broker.Credentials
		vhost, name string
		want        broker.ErrorClass
		wantError   string
	}{
		"a missing queue":                   {guest, "/", "nothing", broker.ClassNotFound, `the queue "nothing"`},
		"a missing virtual host":            {guest, "nowhere", name, broker.ClassNotFound, `the virtual host "nowhere"`},
		"a wrong password":                  {broker.Credentials{URL: s.api, Username: "guest", Password: "hidden"}, "/", name, broker.ClassUnauthorized, "401"},
		"no credentials":                    {broker.Credentials{URL: s.api}, "/", name, broker.ClassUnauthorized, "401"},
		"an unsupported URL scheme":         {broker.Credentials{URL: "amqp://127.0.0.1"}, "/", name, broker.ClassInvalid, "url has an unsupported scheme"},
		"a server that does not speak HTTP": {broker.Credentials{URL: "http://127.0.0.1:" + s.amqp}, "/", name, broker.ClassUnknown, "malformed"},
		"no server":                         {broker.Credentials{URL: "http://127.0.0.1:1"}, "/", name, broker.ClassUnreachable, "refused"},
	} {
		t.Run(title, func(t *testing.T) {
			_, err := readQueue(t, row.access, row.vhost, row.name)
			require.ErrorContains(t, err, row.wantError)
			require.True(t, broker.ClassOf(err) == row.want && !strings.Contains(err.Error(), "hidden"), "%v is %s, want %s", err, broker.ClassOf(err), row.want)
		})
	}
}

// A real server omits statistics only for a short time.
func TestMissingStatisticsAreAnError(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		response string
		want     broker.ErrorClass
	}{
		"no counts":               {`{"name":"jobs"}`, broker.ClassUnknown},
		"one of two counts":       {`{"messages_ready":1}`, broker.ClassUnknown},
		"negative counts":         {`{"messages_ready":-1,"messages_unacknowledged":0}`, broker.ClassInvalid},
		"counts that are strings": {`{"messages_ready":"1","messages_unacknowledged":"0"}`, broker.ClassInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, row.response) }))
			defer server.Close()
			reading, err := readQueue(t, broker.Credentials{URL: server.URL}, "/", "jobs")
			require.True(t, err != nil && broker.ClassOf(err) == row.want, "%+v: %v, want %s", reading, err, row.want)
		})
	}
}
