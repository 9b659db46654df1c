package brokerconn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

const ns = "team"

var localDialer = bounded.NewDialer(bounded.Options{AllowLocal: true})

func newSecret(name string, data ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.LabelBroker: "true"}}, Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = []byte(data[i+1])
	}
	return s
}

// natsBroker returns a reference to a broker whose URL is in that Secret.
func natsBroker(urlSecret string) *v1alpha1.Broker {
	b := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	b.URLSecretRef.Name, b.URLSecretRef.Key = urlSecret, "url"
	return b
}

// testManager is a Manager with short intervals, and its notifications.
type testManager struct {
	*Manager
	t             *testing.T
	cluster       client.Client
	notifications chan Notification
}

func startManager(t *testing.T, secrets ...client.Object) *testManager {
	t.Helper()
	m := &testManager{t: t, cluster: fake.NewClientBuilder().WithObjects(secrets...).Build(), notifications: make(chan Notification, 100)}
	m.Manager = NewManager(m.cluster, Options{
		Dialer: localDialer, ProbeInterval: 50 * time.Millisecond, RequestTimeout: time.Minute, MaxRetryInterval: 100 * time.Millisecond, SecretReadInterval: 100 * time.Millisecond,
	})
	m.AddListener(func(e Notification) { m.notifications <- e })
	t.Cleanup(m.stopNow)
	return m
}

// stopNow may be called again.
func (m *testManager) stopNow() {
	m.stop()
	m.background.Wait()
}

// waitForReason waits until the connection has a problem with that reason; an empty reason means none.
func (m *testManager) waitForReason(b *v1alpha1.Broker, want string) error {
	m.t.Helper()
	var err error
	poll.Until(m.t, fmt.Sprintf("the connection to have the reason %q", want), func() bool {
		_, err = m.Conn(ns, b).Engine()
		problem := (*brokeraccess.ConnectionError)(nil)
		if err == nil && want == "" || errors.As(err, &problem) && problem.Reason == want {
			return true
		}
		if len(m.notifications) > 0 { // of an earlier change
			<-m.notifications
		}
		return false
	})
	return err
}

func TestALostBrokerIsReportedAndReconnected(t *testing.T) {
	t.Parallel()
	nats, redis := natstest.Start(t), redistest.Start(t)
	// A request waits for a connection, so it must be short.
	m := startImpatientManager(t, newSecret("nats", "url", nats.ClientURL()), newSecret("redis", "url", redis.URL()))
	for secret, row := range map[string]struct {
		engine        v1alpha1.Engine
		stop, restart func()
	}{"nats": {v1alpha1.EngineNATS, nats.Stop, nats.Restart}, "redis": {v1alpha1.EngineAsynq, redis.Stop, redis.Restart}} {
		b := natsBroker(secret)
		b.Engine = row.engine
		_, err := m.Conn(ns, b).Engine()
		require.True(t, err == nil || errors.Is(err, ErrConnecting), "the first error is %v", err) // nil if it was fast
		m.waitForReason(b, "")
		row.stop()
		m.waitForReason(b, v1alpha1.ReasonConnectionFailed)
		row.restart()
		m.waitForReason(b, "")
	}
}

// A server ends the connection of a client for good when it sends a message beyond a limit that was lowered meanwhile.
func TestAConnectionThatTheServerEndedIsReplaced(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	m := startManager(t, newSecret("broker", "url", s.ClientURL()))
	m.waitForReason(natsBroker("broker"), "")
	ended := require.Call(m.Conn(ns, natsBroker("broker")).Engine()).Succeeds(t)
	lowered := s.Options().Clone()
	lowered.MaxPayload = 1024
	require.NoError(t, s.ReloadOptions(lowered))
	_, err := ended.(broker.Producer).Send(t.Context(), &broker.OutgoingJob{Queue: "orders", Payload: make([]byte, 10_000)})
	require.True(t, broker.ClassOf(err) == broker.ClassUnreachable && strings.Contains(err.Error(), "Maximum Payload Violation"), "got %v", err)
	poll.Until(t, "another connection", func() bool {
		engine, err := m.Conn(ns, natsBroker("broker")).Engine()
		return err == nil && engine != ended
	})
}

func TestASecretIsFoundOnceCreatedAndItsDeletionKeepsTheConnectionForCleanup(t *testing.T) {
	t.Parallel()
	s, m, b := natstest.Start(t), startManager(t), natsBroker("broker")
	require.ErrorContains(t, m.waitForReason(b, v1alpha1.ReasonSecretNotFound), `Secret "broker" not found`)
	secret := newSecret("broker", "url", s.ClientURL())
	require.NoError(t, m.cluster.Create(t.Context(), secret))
	m.waitForReason(b, "")
	require.NoError(t, m.cluster.Delete(t.Context(), secret))
	m.waitForReason(b, v1alpha1.ReasonSecretNotFound)
	engine := m.Conn(ns, b).EngineForCleanup()
	require.True(t, engine != nil, "the connection was closed")
	_, err := engine.Stats(t.Context(), "orders")
	require.True(t, broker.ClassOf(err) == broker.ClassNotFound, "reading the stats fails with %v", err)
}

func TestChangedCredentialsReplaceTheConnection(t *testing.T) {
	t.Parallel()
	old := &server.User{Username: "me", Password: "old"}
	s := natstest.Start(t, func(o *server.Options) { o.Users = []*server.User{old} })
	b := natsBroker("broker")
	b.CredentialsSecretRef = &v1alpha1.LocalReference{Name: "login"}
	m := startManager(t, newSecret("broker", "url", "nats://"+s.Address()), newSecret("login", "username", "me", "password", "old"))
	m.waitForReason(b, "")
	require.NoError(t, m.cluster.Update(t.Context(), newSecret("login", "username", "me", "password", "new")))
	err := m.waitForReason(b, v1alpha1.ReasonUnauthorized)
	require.True(t, !strings.Contains(err.Error(), "new"), "the password is in the error: %v", err)
	require.NoError(t, m.cluster.Update(t.Context(), newSecret("login", "username", "me", "password", "old")))
	m.waitForReason(b, "")
}

func TestAnInvalidBrokerIsReported(t *testing.T) {
	t.Parallel()
	with := func(change func(*v1alpha1.Broker)) *v1alpha1.Broker {
		b := natsBroker("broker")
		change(b)
		return b
	}
	withKey := with(func(b *v1alpha1.Broker) { b.URLSecretRef.Key = "address" })
	withTLS := func(secret string) *v1alpha1.Broker {
		return with(func(b *v1alpha1.Broker) { b.TLSSecretRef = &v1alpha1.LocalReference{Name: secret} })
	}
	withLogin := func(secret string) *v1alpha1.Broker {
		return with(func(b *v1alpha1.Broker) { b.CredentialsSecretRef = &v1alpha1.LocalReference{Name: secret} })
	}
	const needsLabel = `Secret "private" is not labeled for use with a broker: kubectl label secret private -n team yardmaster.dev/broker=true`
	for name, row := range map[string]struct {
		broker              *v1alpha1.Broker
		reason, wantMessage string
	}{
		"no broker":                      {nil, v1alpha1.ReasonNoBroker, "the object has no broker"},
		"an unsupported engine":          {with(func(b *v1alpha1.Broker) { b.Engine = "Pigeon" }), v1alpha1.ReasonNoBroker, "broker.engine is Pigeon"},
		"a missing key":                  {withKey, v1alpha1.ReasonSecretInvalid, `"broker" has no value for the key "address"`},
		"an empty TLS Secret":            {withTLS("empty"), v1alpha1.ReasonSecretInvalid, "none of the keys ca.crt"},
		"a CA that is not PEM":           {withTLS("odd"), v1alpha1.ReasonSecretInvalid, "the CA certificate is not PEM"},
		"a certificate without its key":  {withTLS("keyless"), v1alpha1.ReasonSecretInvalid, "both must be PEM, and belong together"},
		"empty credentials":              {withLogin("empty"), v1alpha1.ReasonSecretInvalid, "none of the keys username"},
		"a URL of another scheme":        {natsBroker("web"), v1alpha1.ReasonURLInvalid, "url has an unsupported scheme"},
		"an invalid URL with a password": {natsBroker("odd"), v1alpha1.ReasonURLInvalid, "url is not a valid URL"},
		"a URL Secret without the label": {natsBroker("private"), v1alpha1.ReasonSecretInvalid, needsLabel},
		"a TLS Secret without the label": {withTLS("private"), v1alpha1.ReasonSecretInvalid, needsLabel},
		"credentials without the label":  {withLogin("private"), v1alpha1.ReasonSecretInvalid, needsLabel},
	} {
		t.Run(name, func(t *testing.T) {
			private := newSecret("private", "url", "nats://hidden", "token", "hidden", "ca.crt", "hidden")
			private.Labels[v1alpha1.LabelBroker] = "false"
			m := startManager(t, newSecret("broker", "url", "nats://127.0.0.1:1"), newSecret("empty"), private,
				newSecret("web", "url", "http://broker"), newSecret("odd", "url", "nats://me:hidden@%zz", "ca.crt", "hidden"),
				newSecret("keyless", "tls.crt", "hidden"))
			err := m.waitForReason(row.broker, row.reason)
			require.ErrorContains(t, err, row.wantMessage)
			require.True(t, !strings.Contains(err.Error(), "hidden"), "the message is %q", err)
		})
	}
}

func TestStatsAreReadOnceForAllCallers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	m := startManager(t, newSecret("broker", "url", s.ClientURL()))
	m.waitForReason(natsBroker("broker"), "")
	conn := m.Conn(ns, natsBroker("broker"))
	engine := require.Call(conn.Engine()).Succeeds(t)
	queuetest.Ensure(t, engine, "orders")
	first := require.Call(conn.Stats(t.Context(), "orders", time.Hour)).Succeeds(t)
	again, err := conn.Stats(t.Context(), "orders", time.Hour)
	require.True(t, err == nil && reflect.DeepEqual(again, first), "%+v, then %+v: %v", first, again, err)
	now, err := conn.Stats(t.Context(), "orders", 0)
	require.True(t, err == nil && now.MeasuredTime.After(first.MeasuredTime), "a maximum age of 0 returns %+v, then %+v: %v", first, now, err)

	conn.NotifyWhenReady("orders")
	conn.NotifyWhenReady("orders")
	require.Call(s.JetStream().Publish(t.Context(), "yardmaster.orders.ready.default", nil)).Succeeds(t)
	m.expectNotification(Notification{Key: conn.Key, Queue: "orders"})
	require.True(t, len(m.notifications) == 0, "it is notified again")
	require.Equal(t, 1, require.Call(conn.Stats(t.Context(), "orders", time.Hour)).Succeeds(t).Ready)
}

// expectNotification waits for a notification and skips others.
func (m *testManager) expectNotification(want Notification) {
	m.t.Helper()
	poll.Until(m.t, fmt.Sprintf("the notification %+v", want), func() bool {
		for len(m.notifications) > 0 {
			if <-m.notifications == want {
				return true
			}
		}
		return false
	})
}

func TestAnUnusedConnectionIsClosed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	m := startManager(t, newSecret("broker", "url", s.ClientURL()))
	m.waitForReason(natsBroker("broker"), "")
	m.mu.Lock()
	m.options.IdleTimeout = time.Millisecond
	m.mu.Unlock()
	m.background.Wait()
	require.True(t, len(m.conns) == 0, "%d connections remain", len(m.conns))
	poll.Until(t, "the server to have no connections", func() bool { return s.NumClients() == 0 })
}

func TestObjectsWithoutABrokerShareTheDefaultBroker(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	m := startManager(t, newSecret("default", "url", s.ClientURL()))
	m.options.DefaultBroker, m.options.DefaultNamespace = natsBroker("default"), ns
	conn := m.Conn("elsewhere", nil)
	poll.Until(t, "a connection", func() bool { _, err := conn.Engine(); return err == nil }) // the first attempt may take too long
	require.True(t, m.Conn("another", nil) == conn, "two namespaces have two connections to the default broker")
}

var shortIntervals = Options{Dialer: localDialer, RequestTimeout: time.Minute, MaxRetryInterval: 10 * time.Millisecond, SecretReadInterval: time.Millisecond}

func accessWithURL(secret string) v1alpha1.BrokerAccess {
	return v1alpha1.BrokerAccess{URLSecretRef: v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: secret}}}
}

// Package kedascaler has the tests of external scalers, and the hostile sources are also external scalers.
func TestEachTypeOfSourceIsRead(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.RunCLI("LPUSH", "jobs", "a", "b", "c")
	redis.RunCLI("XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM")
	redis.RunCLI("XADD", "stream", "*", "a", "b")
	webServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/api/queues/%2F/jobs":
			_, _ = fmt.Fprint(w, `{"messages_ready":4,"messages_unacknowledged":2,"message_stats":{"publish":9}}`)
		case "/api/v1/query":
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"5"]}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer webServer.Close()
	server := natstest.Start(t)
	addConsumer(t, server)
	s := NewSourceReader(fake.NewClientBuilder().WithObjects(
		newSecret("redis", "url", redis.URL()), newSecret("web", "url", webServer.URL), newSecret("nats", "url", server.ClientURL()),
	).Build(), shortIntervals)
	for name, row := range map[string]struct {
		source   v1alpha1.Source
		backlog  int64
		inFlight int64 // -1: unknown
		arrived  bool
	}{
		"Redis list":                  {v1alpha1.Source{Redis: &v1alpha1.RedisSource{BrokerAccess: accessWithURL("redis"), Key: "jobs"}}, 3, -1, false},
		"Redis stream":                {v1alpha1.Source{Redis: &v1alpha1.RedisSource{BrokerAccess: accessWithURL("redis"), Key: "stream", Group: "g"}}, 1, 0, false},
		"RabbitMQ":                    {v1alpha1.Source{RabbitMQ: &v1alpha1.RabbitMQSource{BrokerAccess: accessWithURL("web"), Queue: "jobs"}}, 4, 2, true},
		"NATS JetStream consumer":     {v1alpha1.Source{NATSJetStream: &v1alpha1.NATSJetStreamSource{BrokerAccess: accessWithURL("nats"), Stream: "orders", Consumer: "billing"}}, 1, 0, true},
		"Prometheus query":            {v1alpha1.Source{Prometheus: &v1alpha1.PrometheusSource{BrokerAccess: accessWithURL("web"), Query: "q"}}, 5, -1, false},
		"Prometheus with all queries": {v1alpha1.Source{Prometheus: &v1alpha1.PrometheusSource{BrokerAccess: accessWithURL("web"), Query: "q", InFlightQuery: "i", ArrivalsQuery: "a"}}, 5, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := require.Call(s.ReadBacklog(t.Context(), ns, &row.source)).Succeeds(t)
			isInFlight := f.InFlightKnown && f.InFlight == row.inFlight || !f.InFlightKnown && row.inFlight < 0
			require.True(t, f.Backlog == row.backlog && isInFlight && (f.Arrived != nil) == row.arrived, "%+v", f)
		})
	}
	external := &v1alpha1.Source{External: &v1alpha1.ExternalSource{Address: "127.0.0.1:1"}}
	f, err := s.ReadBacklog(t.Context(), ns, external)
	require.True(t, broker.ClassOf(err) == broker.ClassUnreachable, "unreachable source: %+v, %v", f, err)
	_, err = s.ReadBacklog(t.Context(), ns, &v1alpha1.Source{})
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid, "source without a type: %v", err)
}

// addConsumer creates the consumer billing of the stream orders, which has one message.
func addConsumer(t *testing.T, server *natstest.Server) {
	t.Helper()
	js := server.JetStream()
	stream := require.Call(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})).Succeeds(t)
	require.Call(stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})).Succeeds(t)
	require.Call(js.Publish(t.Context(), "orders.new", []byte("x"))).Succeeds(t)
}

func TestASourceFollowsItsSecret(t *testing.T) {
	t.Parallel()
	one, other := redistest.Start(t), redistest.Start(t)
	other.RunCLI("LPUSH", "jobs", "x")
	cluster := fake.NewClientBuilder().Build()
	s := NewSourceReader(cluster, shortIntervals)
	list := &v1alpha1.Source{Redis: &v1alpha1.RedisSource{BrokerAccess: accessWithURL("redis"), Key: "jobs"}}
	waitForBacklog := func(backlog int64) {
		t.Helper()
		require.NoError(t, poll.UntilNil(t.Context(), func() error {
			f, err := s.ReadBacklog(t.Context(), ns, list)
			if err == nil && f.Backlog == backlog {
				return nil
			}
			return fmt.Errorf("%+v: %w, want %d", f, err, backlog)
		}))
	}
	problem := (*brokeraccess.ConnectionError)(nil)
	_, err := s.ReadBacklog(t.Context(), ns, list)
	require.ErrorContains(t, err, `"redis"`)
	require.True(t, errors.As(err, &problem) && problem.Reason == v1alpha1.ReasonSecretNotFound, "without its Secret: %v", err)
	require.NoError(t, cluster.Create(t.Context(), newSecret("redis", "url", one.URL())))
	waitForBacklog(0)
	one.Stop()
	for range 2 { // the second read returns the first error
		f, err := s.ReadBacklog(t.Context(), ns, list)
		require.True(t, broker.ClassOf(err) == broker.ClassUnreachable, "of a stopped server: %+v, %v", f, err)
	}
	require.NoError(t, cluster.Update(t.Context(), newSecret("redis", "url", other.URL())))
	waitForBacklog(1)

	ctx, stop := context.WithCancel(t.Context())
	stop()
	err = s.Start(ctx)
	require.True(t, err == nil && len(s.conns) == 0, "%v, %d connections remain", err, len(s.conns))
}
