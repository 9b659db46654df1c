package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

// mailersPool returns a pool with 6 of 8 workers ready.
func mailersPool(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}}}
	wp.Spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: 1, MaxReplicas: 12, WaitP95: &v1alpha1.Duration{Duration: metav1.Duration{Duration: 30 * time.Second}}}
	wp.Status = v1alpha1.WorkerPoolStatus{
		Desired: 8, WorkerCounts: v1alpha1.WorkerCounts{Replicas: 8, Ready: 6}, Busy: new(int32(5)), MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1200)), InFlight: new(int64(50)), WaitP95: &metav1.Duration{Duration: 12_340 * time.Millisecond}},
		CurrentRevision: "mailers-1a", UpdatedRevision: "mailers-2",
		Revisions:      []v1alpha1.RevisionStatus{{Name: "mailers-2", Version: "1.1"}, {Name: "mailers-1a"}},
		ObjectiveMet:   metav1.ConditionTrue,
		LastDecision:   &v1alpha1.ScaleDecision{Explanation: v1alpha1.Explanation{Reason: "Demand"}},
		ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}}},
	}
	for _, change := range changes {
		change(wp)
	}
	return wp
}

func TestPoolTable(t *testing.T) {
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want []string
	}{
		"without a status": {
			&v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers"}},
			[]string{
				"NAME      STATUS    WORKERS   BUSY   DRAINING   BACKLOG   P95/SLO   REVISION   DECISION   AGE",
				"mailers   Pending   0/0       -      0          -         -         -          Manual",
			},
		},
		"during a rollout": {
			mailersPool(),
			[]string{
				"NAME      STATUS   WORKERS   BUSY   DRAINING   BACKLOG   P95/SLO     REVISION   DECISION   AGE",
				"mailers   Ready    6/8       5      0          1200      12.3s/30s   1a→1.1     Demand     2m",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, PoolTable(terminal.Style{}, []*v1alpha1.WorkerPool{row.pool}, startTime.Add(2*time.Minute)).Lines(false))
		})
	}
}

func TestPoolLoadTableShowsBacklogAndWorkers(t *testing.T) {
	want := []string{
		"NAMESPACE   NAME      BACKLOG           IN FLIGHT   P95/SLO     WORKERS                  BUSY   DRAINING   DECISION",
		"data        mailers   1200      ▁▂▄▆█   50          12.3s/30s   6/8       ██████▒▒····   5      0          Demand",
	}
	got := PoolLoadTable(terminal.Style{}, []*PoolLoad{{mailersPool(), []int64{0, 200, 600, 900, 1200}}}).Lines(true)
	require.Equal(t, want, got)
}

func TestPoolChangesAreReportedOnce(t *testing.T) {
	degraded := func(wp *v1alpha1.WorkerPool) {
		wp.Status.Conditions = append(wp.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashLoop, Message: "mailers-2-x has restarted 5 times",
		})
	}
	draining := func(wp *v1alpha1.WorkerPool) { wp.Status.Desired, wp.Status.Draining = 6, 2 }
	const first = "backlog 1200, in flight 50, 6/8 workers ready, 5 busy: Demand"
	for title, row := range map[string]struct {
		before, after *v1alpha1.WorkerPool
		want          []string
	}{
		"the first state":               {nil, mailersPool(), []string{first}},
		"no change":                     {mailersPool(), mailersPool(), nil},
		"a change":                      {mailersPool(), mailersPool(draining), []string{"backlog 1200, in flight 50, 6/6 workers ready, 5 busy, 2 draining: Demand"}},
		"a new problem":                 {mailersPool(), mailersPool(degraded), []string{"CrashLoop: mailers-2-x has restarted 5 times"}},
		"a known problem":               {mailersPool(degraded), mailersPool(degraded), nil},
		"a problem in the first state":  {nil, mailersPool(degraded), []string{first, "CrashLoop: mailers-2-x has restarted 5 times"}},
		"no reason without autoscaling": {nil, mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling = nil }), []string{"backlog 1200, in flight 50, 6/8 workers ready, 5 busy"}},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, texts(PoolChanges(row.before, row.after)))
		})
	}
}

func TestConditionsThatRepeatTheSpecAreNotProblems(t *testing.T) {
	wp := mailersPool(func(wp *v1alpha1.WorkerPool) {
		wp.Status.Conditions = append(wp.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonManual},
			metav1.Condition{Type: v1alpha1.ConditionScalingLimited, Status: metav1.ConditionTrue, Reason: "MinReplicas"})
	})
	if got := PoolProblems(wp); len(got) > 0 {
		t.Errorf("problems %v", got)
	}
}
