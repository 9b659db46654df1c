package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/redistest"
)

// prometheusServer answers each query with the number 0, and records when it was asked.
type prometheusServer struct {
	*httptest.Server

	mutex sync.Mutex
	times []time.Time
}

func newPrometheusServer(t *testing.T) *prometheusServer {
	s := &prometheusServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mutex.Lock()
		s.times = append(s.times, time.Now())
		s.mutex.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1763693000.781,"0"]}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// longestGap returns the longest time between two queries among the last ones.
func (s *prometheusServer) longestGap(last int) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	longest := time.Duration(0)
	for i := max(1, len(s.times)-last); i < len(s.times); i++ {
		longest = max(longest, s.times[i].Sub(s.times[i-1]))
	}
	return longest
}

func (s *prometheusServer) queries() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.times)
}

// createSourcePool creates a pool with a query of its own, because equal ones share their answers.
func (c *poolTestEnv) createSourcePool(name, secret string) {
	c.t.Helper()
	p := newManifest(c.t, "WorkerPool", name, fmt.Sprintf(`{image: "worker:1", drain: {mode: Signal},
		source: {prometheus: {urlSecretRef: {name: %s}, query: %q}}, autoscaling: {minReplicas: 0, maxReplicas: 3}}`, secret, "backlog_"+name))
	p.SetNamespace(c.ns)
	if err := cluster.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
}

func TestAPoolWithARedisListScalesAtOnceWithTheDefaultTarget(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, time.Second)
	redis := redistest.Start(t)
	c.createSecret("redis", "url", redis.URL())
	p := newManifest(t, "WorkerPool", "list", `{image: "worker:1", drain: {mode: Signal},
		source: {redis: {urlSecretRef: {name: redis}, key: jobs}}, autoscaling: {minReplicas: 1, maxReplicas: 6}}`)
	p.SetNamespace(c.ns)
	if err := cluster.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.waitFor("the first worker", func() bool { return c.getPool("list").Status.Ready == 1 })

	redis.RunCLI(append([]string{"LPUSH", "jobs"}, make([]string, 100)...)...)
	start := time.Now()
	c.waitFor("six workers", func() bool { return c.getPool("list").Status.Desired == 6 })
	assertWithin(t, "six workers are wanted", 10*time.Second, start)
	d := c.getPool("list").Status.LastDecision
	if strings.Contains(d.Message, "service time, ") {
		t.Errorf("a service time is assumed: %s", d.Message)
	}
	if want := "10 recommended for 10 messages per worker (default without a service time)"; !strings.HasPrefix(d.Message, want) {
		t.Errorf("message %q, want %q", d.Message, want)
	}
}

// createConsumerPool creates a pool with the consumer billing of the stream shop.
func (c *poolTestEnv) createConsumerPool(name string) {
	c.t.Helper()
	p := newManifest(c.t, "WorkerPool", name, `{image: "worker:1", drain: {mode: Signal}, concurrency: 1, autoscaling: {maxReplicas: 6, backlogPerReplica: 10},
		source: {natsJetStream: {urlSecretRef: {name: broker}, stream: shop, consumer: billing}}}`)
	p.SetNamespace(c.ns)
	if err := cluster.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
}

func TestAPoolFollowsTheLagOfAConsumer(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, time.Second)
	js := c.connectJetStream()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "shop", Subjects: []string{"shop.>"}})
	if err != nil {
		t.Fatal(err)
	}
	createConsumer := func() jetstream.Consumer {
		consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})
		if err != nil {
			t.Fatal(err)
		}
		return consumer
	}
	consumer := createConsumer()
	for range 25 {
		if _, err := js.Publish(t.Context(), "shop.orders", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	c.createConsumerPool("billing")
	c.waitFor("three workers for 25 messages", func() bool { return c.getPool("billing").Status.Desired == 3 })
	if d := c.getPool("billing").Status.LastDecision; !strings.Contains(d.Message, "for 10 messages per worker (backlogPerReplica)") {
		t.Errorf("message %q", d.Message)
	}

	// Workers that do not answer have received more than they handle: the lag stays.
	if batch, err := consumer.Fetch(20); err != nil {
		t.Fatal(err)
	} else {
		for range batch.Messages() { // they stay unacknowledged
		}
	}
	c.waitFor("workers", func() bool { return c.getPool("billing").Status.Replicas == 3 })
	c.waitFor("unacknowledged messages", func() bool {
		return strings.Contains(c.getPool("billing").Status.LastDecision.Message, "F = 3 running")
	})
	if s := c.getPool("billing").Status; s.Desired != 3 || *s.Backlog != 5 || *s.InFlight != 20 {
		t.Errorf("status %+v", s)
	}

	if err := stream.DeleteConsumer(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	stale := c.waitForCondition("billing", v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonMetricsStale)
	if want := `reading the consumer "billing" of the stream "shop": the consumer does not exist`; !strings.Contains(stale.Message, want) {
		t.Errorf("message %q, want %q", stale.Message, want)
	}
	if s := c.getPool("billing").Status; s.Desired != 3 || s.Backlog != nil {
		t.Errorf("status %+v", s)
	}
	createConsumer()
	c.waitForCondition("billing", v1alpha1.ConditionScalingActive, metav1.ConditionTrue, v1alpha1.ReasonAutoscaled)
}

func delaysOnlyPoolsOfASource(t *testing.T) {
	c := newPoolTestEnv(t, time.Second)
	good := newPrometheusServer(t)
	ended := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(ended) })
	c.createSecret("good", "url", good.URL)
	c.createSecret("hanging", "url", hanging.URL)

	c.createSourcePool("good", "good")
	for i := range 50 {
		c.createSourcePool(fmt.Sprintf("hanging-%d", i), "hanging")
	}
	c.waitForCondition("hanging-0", v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonMetricsStale)

	// The source of a pool of another operator is read at the same time, so that both suffer from a busy machine.
	other := newPoolTestEnv(t, time.Second)
	undisturbed := newPrometheusServer(t)
	other.createSecret("good", "url", undisturbed.URL)
	other.createSourcePool("good", "good")
	const queries = 4
	before := good.queries()
	c.waitFor("both sources to be read", func() bool { return undisturbed.queries() > queries && good.queries() > before+queries })
	alone, beside := undisturbed.longestGap(queries), good.longestGap(queries)
	t.Logf("longest time between two readings of a good source: %s alone, %s beside 50 pools whose source does not answer", alone, beside)
	if beside > 2*alone {
		t.Errorf("the good source was not read for %s, alone for %s: want at most twice as long", beside, alone)
	}
}
