package brokerconn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

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
			f, err := s.ReadBacklog(t.Context(), ns, &row.source)
			if err != nil || f.Backlog != row.backlog || f.InFlightKnown != (row.inFlight >= 0) || f.InFlightKnown && f.InFlight != row.inFlight ||
				(f.Arrived != nil) != row.arrived {
				t.Errorf("%+v: %v", f, err)
			}
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
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	require.NoError(t, err)
	_, err = stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.new", []byte("x"))
	require.NoError(t, err)
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
		err := poll.UntilNil(t.Context(), func() error {
			f, err := s.ReadBacklog(t.Context(), ns, list)
			if err == nil && f.Backlog == backlog {
				return nil
			}
			return fmt.Errorf("%+v: %w, want %d", f, err, backlog)
		})
		require.NoError(t, err)
	}
	problem := (*brokeraccess.ConnectionError)(nil)
	if _, err := s.ReadBacklog(t.Context(), ns, list); !errors.As(err, &problem) || problem.Reason != v1alpha1.ReasonSecretNotFound || !strings.Contains(err.Error(), `"redis"`) {
		t.Errorf("without its Secret: %v", err)
	}
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
	err := s.Start(ctx)
	require.True(t, err == nil && len(s.conns) == 0, "%v, %d connections remain", err, len(s.conns))
}
