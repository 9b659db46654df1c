package controller

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/require"
)

// recordingQueue records what is added.
type recordingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	now   int
	later []time.Duration
}

func (q *recordingQueue) Add(reconcile.Request) { q.now++ }

func (q *recordingQueue) AddAfter(_ reconcile.Request, delay time.Duration) {
	q.later = append(q.later, delay)
}

func newTestLease(cost string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "fix", Namespace: "ns", Labels: map[string]string{agenticsession.LabelSession: "fix", agenticsession.LabelSessionUID: "1"},
		Annotations: map[string]string{agenticsession.AnnotationCost: cost},
	}}
}

func TestCostIsReconciledAtOnceOnlyIfItReachesTheLimit(t *testing.T) {
	r, queue := newRenewals(testclock.NewFakePassiveClock(time.Unix(0, 0))), &recordingQueue{}
	s := newTestSession("1")
	s.Namespace, s.Name, s.Spec.Limits.MaxCostUSD = "ns", "fix", new(v1alpha1.Number("2"))
	s.Status.TotalCostUSD, s.Status.Attempt.CostUSD = new(v1alpha1.Number("1.5")), new(v1alpha1.Number("0.5"))
	r.setRemainingCost(&agenticsession.Observation{Session: s})
	before := newTestLease("")
	write := func(cost string) (now, later int) {
		after := newTestLease(cost)
		r.eventHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		before = after
		return queue.now, len(queue.later)
	}
	for i, step := range []struct {
		cost       string
		now, later int
	}{
		{"fix-r1-a1=0.9", 0, 1},
		{"fix-r1-a1=0.9", 0, 1},
		{"fix-r1-a1=0.5", 0, 1}, // the highest one counts
		{"fix-r1-a1=0.99", 0, 2},
		{"fix-r1-a1=1", 1, 2},
		{"fix-r1-a1=1", 1, 2},
		{"fix-r1-a1=1.1", 2, 2},
	} {
		now, later := write(step.cost)
		require.True(t, now == step.now && later == step.later, "step %d, %s: %d now and %d later", i, step.cost, now, later)
	}
	require.Equal(t, "1.1", r.newest(newTestLease("fix-r1-a1=0.1")).cost.USD)
}

func TestAddedCostIsCountedOnce(t *testing.T) {
	s := newTestSession("1")
	s.Namespace, s.Spec.Runner = "counted", "default"
	status := func(total v1alpha1.Number) *v1alpha1.AgenticSessionStatus {
		return &v1alpha1.AgenticSessionStatus{TotalCostUSD: &total, Attempt: v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{JobUID: "job"}}}
	}
	before := &v1alpha1.AgenticSessionStatus{}
	for _, after := range []*v1alpha1.AgenticSessionStatus{status("0.5"), status("0.5"), status("2"), status("2.25")} {
		s.Status = *after
		countTransition(s, before, time.Time{})
		before = after
	}
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Namespace: "counted", Name: "default"}}
	require.Equal(t, 2.25, testutil.ToFloat64(costTotal.Of(runner)))
}
