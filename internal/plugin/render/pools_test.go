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
	pools := []*v1alpha1.WorkerPool{mailersPool(), {ObjectMeta: metav1.ObjectMeta{Name: "without-status"}}}
	want := []string{
		"NAME             STATUS    WORKERS   BUSY   DRAINING   BACKLOG   P95/SLO     REVISION   DECISION   AGE",
		"mailers          Ready     6/8       5      0          1200      12.3s/30s   1a→1.1     Demand     2m",
		"without-status   Pending   0/0       -      0          -         -           -          Manual",
	}
	require.Equal(t, want, PoolTable(terminal.Style{}, pools, startTime.Add(2*time.Minute)).Lines(false))
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
	repeating := func(wp *v1alpha1.WorkerPool) {
		wp.Status.Conditions = append(wp.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonManual},
			metav1.Condition{Type: v1alpha1.ConditionScalingLimited, Status: metav1.ConditionTrue, Reason: "MinReplicas"})
	}
	const first = "backlog 1200, in flight 50, 6/8 workers ready, 5 busy: Demand"
	for title, row := range map[string]struct {
		before, after *v1alpha1.WorkerPool
		want          []string
	}{
		"the first state":                 {nil, mailersPool(), []string{first}},
		"no change":                       {mailersPool(), mailersPool(), nil},
		"a change":                        {mailersPool(), mailersPool(draining), []string{"backlog 1200, in flight 50, 6/6 workers ready, 5 busy, 2 draining: Demand"}},
		"a new problem":                   {mailersPool(), mailersPool(degraded), []string{"CrashLoop: mailers-2-x has restarted 5 times"}},
		"a known problem":                 {mailersPool(degraded), mailersPool(degraded), nil},
		"conditions that repeat the spec": {nil, mailersPool(repeating), []string{first}},
		"a problem in the first state":    {nil, mailersPool(degraded), []string{first, "CrashLoop: mailers-2-x has restarted 5 times"}},
		"no reason without autoscaling":   {nil, mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling = nil }), []string{"backlog 1200, in flight 50, 6/8 workers ready, 5 busy"}},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, texts(PoolChanges(row.before, row.after)))
		})
	}
}

func poolWithDecision(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	return mailersPool(append([]func(*v1alpha1.WorkerPool){func(wp *v1alpha1.WorkerPool) {
		wp.Status.LastDecision = &v1alpha1.ScaleDecision{
			Time: &metav1.Time{Time: startTime}, Recommendation: 13, Explanation: v1alpha1.Explanation{Reason: "MaxReplicas", Message: "13 recommended, scaling from 8 to 12: maxReplicas is 12; B = 1200 waiting messages, the oldest for 12s, F = 50 running; c = 10 handlers per worker; F: 50 handlers"},
		}
	}}, changes...)...)
}

func TestPoolExplanationShowsEachTermOfTheFormula(t *testing.T) {
	want := []string{
		"mailers   8 workers, 6 ready",
		"  MaxReplicas: 13 recommended, scaling from 8 to 12: maxReplicas is 12 (3s ago)",
		"    B = 1200 waiting messages, the oldest for 12s, F = 50 running",
		"    c = 10 handlers per worker",
		"    F: 50 handlers",
		"  13 recommended, 8 desired.",
		"  Limits: 1 to 12 workers, p95 wait 30s.",
	}
	require.Equal(t, want, PoolExplanation(terminal.Style{}, poolWithDecision(), startTime.Add(3*time.Second)))
}

func TestPoolExplanation(t *testing.T) {
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want []string
	}{
		"without autoscaling": {
			mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling, wp.Spec.Replicas = nil, new(int32(8)) }),
			[]string{"mailers   8 workers, 6 ready", "  Manual: spec.replicas is 8, and autoscaling is off"},
		},
		"before the first decision": {
			mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Status = v1alpha1.WorkerPoolStatus{} }),
			[]string{"mailers   0 workers, 0 ready", "  no scaling decision yet"},
		},
		"without metrics": {
			poolWithDecision(func(wp *v1alpha1.WorkerPool) {
				wp.Status.LastDecision = &v1alpha1.ScaleDecision{
					Recommendation: 8, Explanation: v1alpha1.Explanation{Reason: "MetricsUnavailable", Message: "8 recommended: the backlog is unknown, so the number stays the same"},
				}
				wp.Status.Conditions = append(wp.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, Message: "the broker\nis unreachable",
				})
			}),
			[]string{
				"mailers   8 workers, 6 ready",
				"  MetricsUnavailable: 8 recommended: the backlog is unknown, so the number stays the same",
				"  8 recommended, 8 desired.",
				"  Limits: 1 to 12 workers, p95 wait 30s.",
				"  MetricsStale: the broker is unreachable",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, PoolExplanation(terminal.Style{}, row.pool, startTime))
		})
	}
}

func TestQueueTable(t *testing.T) {
	mail := &v1alpha1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}},
		Status: v1alpha1.QueueStatus{
			Engine: v1alpha1.EngineNATS, MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(12)), InFlight: new(int64(0)), WaitP95: &metav1.Duration{Duration: 250 * time.Millisecond}}, Dead: new(int64(3)),
			OldestTime:     &metav1.Time{Time: startTime.Add(time.Minute)},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConnectionFailed}}},
		},
	}
	withoutStatus := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "data"}}
	deleted := mail.DeepCopy()
	deleted.Name, deleted.DeletionTimestamp = "old", &metav1.Time{Time: startTime}
	want := []string{
		"NAMESPACE   NAME   STATUS             BACKLOG   IN FLIGHT   DELAYED   DEAD   OLDEST   P95 WAIT   ENGINE   AGE",
		"data        mail   ConnectionFailed   12        0           -         3      60s      250ms      NATS     2m",
		"data        new    Pending            -         -           -         -      -        -          -",
		"data        old    Deleting           12        0           -         3      60s      250ms      NATS     2m",
	}
	got := QueueTable(terminal.Style{}, []*v1alpha1.Queue{mail, withoutStatus, deleted}, startTime.Add(2*time.Minute)).Lines(true)
	require.Equal(t, want, got)
}

func TestSparklineIsScaledToTheLargestValue(t *testing.T) {
	for title, row := range map[string]struct {
		values []int64
		want   string
	}{
		"no values":  {nil, ""},
		"only zeros": {[]int64{0, 0}, "▁▁"},
		"the largest value has the highest level": {[]int64{0, 50, 100}, "▁▄█"},
		"a small value does not look like zero":   {[]int64{1, 1000}, "▂█"},
		"very large values":                       {[]int64{1 << 62, 1 << 62}, "██"},
		"a negative value looks like zero":        {[]int64{-5, 7}, "▁█"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, Sparkline(row.values))
		})
	}
}

func TestWorkerBarShowsReadyAndStartingWorkers(t *testing.T) {
	for title, row := range map[string]struct {
		ready, desired, limit int32
		want                  string
	}{
		"no workers":                             {0, 0, 10, "············"},
		"all workers of the limit":               {10, 10, 10, "████████████"},
		"a quarter ready and a quarter starting": {3, 6, 12, "███▒▒▒······"},
		"one worker of a high limit":             {1, 1, 10_000, "█···········"},
		"one starting worker is visible":         {100, 101, 1000, "█▒··········"},
		"more workers than the limit":            {6, 3, 3, "████████████"},
		"a limit of zero":                        {0, 0, 0, "············"},
		"very large numbers":                     {1 << 30, 1 << 30, 1<<31 - 1, "██████······"},
		"fewer desired than ready":               {4, 2, 12, "████········"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, WorkerBar(row.ready, row.desired, row.limit))
		})
	}
}
