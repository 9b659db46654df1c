package queue

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAQueueIsNotReadyWhileMessagesStayStranded(t *testing.T) {
	const sweep = time.Minute
	two, none := int64(2), int64(0)
	o := observed(func(o *Observation) { o.SweepInterval, o.Stats.Delayed = sweep, 5 })
	stats, start := o.Stats, o.Now
	readyAfter := func(elapsed time.Duration, stranded *int64) (metav1.Condition, v1alpha1.QueueStatus, []decision.Event) {
		o.Now = start.Add(elapsed)
		o.Apply(ActionRescueMessages, ActionResult{Rescue: broker.RescueResult{Stranded: stranded}})
		o.Stats = stats
		d := Decide(o)
		return findCondition(&d.Status, v1alpha1.ConditionReady), d.Status, d.Events
	}
	for _, elapsed := range []time.Duration{0, sweep, 2 * sweep} {
		ready, status, _ := readyAfter(elapsed, &two)
		require.True(t, ready.Status == metav1.ConditionTrue && *status.Stranded == 2 && *status.Delayed == 3, "after %s: %+v, %+v", elapsed, ready, status)
	}
	ready, _, events := readyAfter(2*sweep+time.Second, &two)
	require.True(t, ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonMessagesStranded, "after two sweeps: %+v", ready)
	require.Contains(t, ready.Message, ": 2 messages")
	isWarning := func(e decision.Event) bool { return e.Type == corev1.EventTypeWarning && e.Reason == v1alpha1.ReasonMessagesStranded }
	require.True(t, slices.ContainsFunc(events, isWarning), "events %+v", events)
	ready, status, _ := readyAfter(3*sweep, nil)
	isUnknown := ready.Reason == v1alpha1.ReasonMessagesStranded && status.Stranded == nil && *status.Delayed == 5
	require.True(t, isUnknown, "while the number is unknown: %+v", ready)
	ready, status, _ = readyAfter(4*sweep, &none)
	require.True(t, ready.Status == metav1.ConditionTrue && *status.Stranded == 0, "after the rescue: %+v", ready)
}

func TestARescueThatIsNotCompleteContinuesBeforeTheNextSweep(t *testing.T) {
	for name, row := range map[string]struct {
		result ActionResult
		want   time.Duration
	}{
		"it was complete":     {ActionResult{Rescue: broker.RescueResult{Rescued: broker.MaxRescued - 1}}, time.Hour},
		"there may be more":   {ActionResult{Rescue: broker.RescueResult{Rescued: broker.MaxRescued}}, unfinishedInterval},
		"messages are left":   {ActionResult{Rescue: broker.RescueResult{Stranded: new(int64(1))}}, unfinishedInterval},
		"the broker failed":   {ActionResult{Err: broker.Errorf(broker.ClassUnreachable, "timeout")}, 0},
		"the broker refused":  {ActionResult{Err: broker.Errorf(broker.ClassInvalid, "no")}, 0},
		"the queue went away": {ActionResult{Err: broker.Errorf(broker.ClassNotFound, "no stream")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed()
			o.History.Comparison.Expires = o.Now.Add(time.Hour)
			o.Apply(ActionRescueMessages, row.result)
			want := time.Time{}
			if row.want > 0 {
				want = o.Now.Add(row.want)
			}
			require.Equal(t, want, o.History.Comparison.Expires)
		})
	}
}
