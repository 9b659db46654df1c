package brokerconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// maxAllocated is the most that one hostile broker may make the process allocate.
	maxAllocated = 48 << 20
	// maxReportTime is until a hostile broker is reported: a request and a message time out.
	maxReportTime = 10 * time.Second
)

// serveAt serves connections at a loopback address until the test ends. It returns host:port.
func serveAt(t *testing.T, host string, serve hostile.Attack) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go hostile.Serve(listener, serve)
	return listener.Addr().String()
}

func TestAReplyBeyondTheBudgetIsNamed(t *testing.T) {
	address := serveAt(t, "127.0.0.1", hostile.AsNATS(hostile.Send("MSG a 1 600000000\r\n")))
	m := startImpatientManager(t, newSecret("hostile", "url", "nats://"+address))
	err := m.waitForReason(natsBroker("hostile"), v1alpha1.ReasonConnectionFailed)
	require.True(t, strings.Contains(err.Error(), "more than 8 MiB"), "%v", err)
}

func allocatedBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// requireBounded fails the test unless an attack fails with a short error, little memory and in time. On a busy machine it can take longer,
// so it is prepared and measured again.
func requireBounded(t *testing.T, atMost time.Duration, prepare func() (attack func() error, end func())) {
	t.Helper()
	require.NoError(t, poll.UntilNil(t.Context(), func() error {
		attack, end := prepare()
		defer end()
		start, before := time.Now(), allocatedBytes()
		err := attack()
		took, allocated := time.Since(start), allocatedBytes()-before
		t.Logf("%d MiB were allocated in %s: %v", allocated>>20, took, err)
		require.True(t, allocated <= maxAllocated, "%d MiB were allocated", allocated>>20)
		require.True(t, err != nil && len(err.Error()) <= 2000, "the error is %v", err)
		if took > atMost {
			return fmt.Errorf("it took %s, want at most %s", took, atMost)
		}
		return nil
	}))
}

func TestAHostileBrokerIsReportedWithBoundedMemoryAndTime(t *testing.T) {
	healthy := natstest.Start(t)
	for name, row := range hostile.Brokers() {
		t.Run(name, func(t *testing.T) {
			address := serveAt(t, "127.0.0.1", row.Attack)
			requireBounded(t, maxReportTime, func() (attack func() error, end func()) {
				m := startImpatientManager(t, newSecret("hostile", "url", row.Scheme+"://"+address), newSecret("healthy", "url", healthy.ClientURL()))
				m.waitForReason(natsBroker("healthy"), "")
				attacker := natsBroker("hostile")
				attacker.Engine = row.Engine
				return func() error { return m.waitForReason(attacker, v1alpha1.ReasonConnectionFailed) }, func() {
					m.assertAnswers(natsBroker("healthy"))
					m.stopNow()
				}
			})
		})
	}
}

// The failover client of the Redis library ends the process if a Sentinel answers with too few values.
func TestAHostileSentinelIsReportedWithBoundedMemoryAndTime(t *testing.T) {
	answers := func(text string) hostile.Attack {
		return hostile.ServeRedis(func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, text) })
	}
	attacks := map[string]hostile.Attack{"no values": answers("*0\r\n"), "one value": answers("*1\r\n$1\r\na\r\n"), "no text": answers("*2\r\n*0\r\n*0\r\n")}
	for name, broker := range hostile.Brokers() {
		if broker.Engine == v1alpha1.EngineAsynq && broker.Scheme == "redis" {
			attacks[name] = broker.Attack
		}
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			requireBounded(t, maxReportTime, func() (func() error, func()) {
				m := startImpatientManager(t, newSecret("hostile", "url", "redis://"+serveAt(t, "127.0.0.1", attack)))
				b := natsBroker("hostile")
				b.Engine, b.Sentinel = v1alpha1.EngineAsynq, &v1alpha1.RedisSentinel{MasterName: "main"}
				return func() error { return m.waitForReason(b, v1alpha1.ReasonConnectionFailed) }, m.stopNow
			})
		})
	}
}

// startImpatientManager starts a Manager whose requests have a second.
func startImpatientManager(t *testing.T, secrets ...client.Object) *testManager {
	t.Helper()
	m := startManager(t, secrets...)
	m.options.RequestTimeout = time.Second
	return m
}

// assertAnswers reads stats from a broker within a second.
func (m *testManager) assertAnswers(b *v1alpha1.Broker) {
	m.t.Helper()
	err := poll.UntilNil(m.t.Context(), func() error { // a busy machine can be late
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		if _, err := m.Conn(ns, b).Stats(ctx, "orders", 0); broker.ClassOf(err) != broker.ClassNotFound {
			return fmt.Errorf("another tenant's broker: %w", err)
		}
		return nil
	})
	require.NoError(m.t, err)
}

// A source is read within a reconciliation, which must end in time.
func TestAHostileSourceFailsWithBoundedMemoryAndTime(t *testing.T) {
	sources := hostile.Sources()
	for name, row := range hostile.Brokers() {
		if row.Engine == v1alpha1.EngineNATS {
			sources[name] = hostile.NATSSource(row)
		}
	}
	for name, row := range sources {
		t.Run(name, func(t *testing.T) {
			address, o := serveAt(t, "127.0.0.1", row.Attack), shortIntervals
			o.RequestTimeout = time.Second
			requireBounded(t, o.RequestTimeout+3*time.Second, func() (attack func() error, end func()) {
				reader := NewSourceReader(fake.NewClientBuilder().WithObjects(newSecret("url", "url", row.Scheme+address)).Build(), o)
				source := row.Spec("url", address)
				return func() error { _, err := reader.ReadBacklog(t.Context(), ns, &source); return err }, func() {
					for _, conn := range reader.conns { // it would reconnect during the next attack
						conn.close()
					}
				}
			})
		})
	}
}

// The address 127.0.0.2 stands for one that the operator must not reach.
func TestServersThatABrokerAnnouncesAreCheckedToo(t *testing.T) {
	var contacts atomic.Int32
	internal := serveAt(t, "127.0.0.2", func(net.Conn) { contacts.Add(1) })
	nats := serveAt(t, "127.0.0.1", asNATSWithURLs(internal))
	redis := serveAt(t, "127.0.0.1", hostile.ServeRedis(func(conn net.Conn, command string) {
		if command == "cluster" {
			host, port, _ := net.SplitHostPort(internal)
			_, _ = fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
			return
		}
		_, _ = fmt.Fprintf(conn, "-MOVED 1 %s\r\n", internal)
	}))
	for name, row := range map[string]struct {
		engine   v1alpha1.Engine
		url      string
		sentinel *v1alpha1.RedisSentinel
	}{
		"discovered by NATS":           {v1alpha1.EngineNATS, "nats://" + nats, nil},
		"redirection of a Redis node":  {v1alpha1.EngineAsynq, "redis://" + redis + ",redis://" + redis, nil},
		"master that a Sentinel names": {v1alpha1.EngineAsynq, "redis://" + serveSentinel(t, internal), &v1alpha1.RedisSentinel{MasterName: "main"}},
	} {
		for _, isDenied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, denied: %t", name, isDenied), func(t *testing.T) {
				o := bounded.Options{AllowLocal: true}
				if isDenied {
					o.Deny = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
				}
				m := startImpatientManager(t, newSecret("hostile", "url", row.url))
				m.options.Dialer = bounded.NewDialer(o)
				contacts.Store(0)
				b := natsBroker("hostile")
				b.Engine, b.Sentinel = row.engine, row.sentinel
				err := m.waitForReason(b, v1alpha1.ReasonConnectionFailed)
				require.True(t, row.sentinel == nil || errors.Is(err, broker.ErrUnreachable), "the cause is revealed: %v", err)
				if contacts.Load() > 0 == isDenied {
					t.Errorf("the announced server was contacted %d times", contacts.Load())
				}
			})
		}
	}
}

// asNATSWithURLs announces another server and closes the connection.
func asNATSWithURLs(other string) hostile.Attack {
	return func(conn net.Conn) {
		_, _ = fmt.Fprintf(conn, `INFO {"server_id":"A","version":"2.12.0","connect_urls":[%q]}`+"\r\n", other)
		hostile.AfterRequest(conn)
	}
}
