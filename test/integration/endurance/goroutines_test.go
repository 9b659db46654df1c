package endurance

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// maxGoroutines is the tolerated difference between two numbers of goroutines, which vary with the
// current work.
const maxGoroutines = 5

// Sessions are created and deleted repeatedly while the operator runs. The number of goroutines
// after that is the same as before, and none is left when the operator has stopped.
func TestSessionsLeaveNoGoroutines(t *testing.T) {
	s := newSessionsTest(t)
	s.closeConnections()
	before := goleak.IgnoreCurrent()
	mgr, err := operator.New(cluster.Config, operator.Options{
		Controllers: operator.AllControllers(), Namespaces: []string{s.namespace}, Concurrency: 10, QueueSweep: time.Minute,
		KubeAPIQPS: -1, HealthAddress: "0", Metrics: operator.MetricsOptions{Address: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(ctx) }()

	const atOnce = 50
	s.runRound(0, atOnce) // starts everything that starts on first use
	begin := s.goroutinesAtRest()
	all := testbuilder.NumberFromEnv(t, "SESSION_ROUNDS", 2) * atOnce
	for first := atOnce; first < all+atOnce; first += atOnce {
		s.runRound(first, atOnce)
	}
	end := s.goroutinesAtRest()
	t.Logf("%d goroutines after %d sessions, %d before", end, all, begin)
	if end > begin+maxGoroutines || end < begin-maxGoroutines {
		t.Errorf("%d goroutines after %d sessions, %d before: want a difference of at most %d", end, all, begin, maxGoroutines)
	}
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	s.requireNoGoroutines(before, mgr.GetHTTPClient().Transport)
}

// runRound creates sessions, waits until each has its Job, and deletes them with all their objects.
func (s *sessionsTest) runRound(first, number int) {
	s.t.Helper()
	var sessions []*v1alpha1.AgenticSession
	for i := range number {
		sessions = append(sessions, s.newSession(first+i))
		s.create(sessions[i])
	}
	for _, one := range sessions {
		poll.Until(s.t, "a Job of "+one.Name, func() bool {
			if err := cluster.Get(s.t.Context(), client.ObjectKeyFromObject(one), one); err != nil {
				s.t.Fatal(err)
			}
			return one.Status.Phase != "" && one.Status.Phase != v1alpha1.SessionPending
		})
		if err := cluster.Delete(s.t.Context(), one); err != nil {
			s.t.Fatal(err)
		}
	}
	poll.Until(s.t, "all Jobs to be deleted", func() bool {
		var jobs batchv1.JobList
		if err := cluster.List(s.t.Context(), &jobs, client.InNamespace(s.namespace)); err != nil {
			s.t.Fatal(err)
		}
		return len(jobs.Items) == 0
	})
}

// goroutinesAtRest returns the number of goroutines when the operator is idle: when it has not changed for a second.
func (s *sessionsTest) goroutinesAtRest() int {
	s.t.Helper()
	number, since := 0, time.Now()
	poll.Until(s.t, "a constant number of goroutines", func() bool {
		s.closeConnections()
		if now := runtime.NumGoroutine(); now != number {
			number, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	return number
}

// requireNoGoroutines waits until the goroutines of the operator have ended. Its connections are closed repeatedly,
// because one becomes idle only shortly after its last request.
func (s *sessionsTest) requireNoGoroutines(before goleak.Option, transport http.RoundTripper) {
	s.t.Helper()
	if err := poll.UntilNil(s.t.Context(), func() error {
		utilnet.CloseIdleConnectionsFor(transport)
		s.closeConnections()
		return goleak.Find(before)
	}); err != nil {
		s.t.Fatal(err)
	}
}

// closeConnections closes the idle connections of the test, whose goroutines do not belong to the
// operator. Equal configurations share one transport.
func (s *sessionsTest) closeConnections() {
	s.t.Helper()
	transport, err := rest.TransportFor(cluster.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	utilnet.CloseIdleConnectionsFor(transport)
}
