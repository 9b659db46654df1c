package workerpool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestConditionsSayWhatHoldsNow(t *testing.T) {
	starting := newTestPool(2).withCurrentRevision(2).changeWorker("worker:1-1", unready)
	atMinimum := autoscaledPool(2)
	atMinimum.Pool.Spec.Autoscaling.MinReplicas = 2
	atMaximum := autoscaledPool(2)
	atMaximum.Stats.Backlog, atMaximum.Pool.Spec.Autoscaling.MaxReplicas = 1000, 2
	for title, row := range map[string]struct {
		pool      *testPool
		condition string
		want      metav1.ConditionStatus
		reason    string
		message   string
	}{
		"all workers are ready": {
			newTestPool(2).withCurrentRevision(2), v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRolledOut,
			"all workers are of revision " + starting.revisionName(),
		},
		"a worker is not ready after the rollout": {
			starting, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonWorkersStarting,
			"1 of 2 workers of revision " + starting.revisionName() + " are ready",
		},
		"a pool whose metrics cannot be read is not autoscaled": {
			withoutStats(autoscaledPool(2)), v1alpha1.ConditionScalingActive, metav1.ConditionFalse, v1alpha1.ReasonMetricsStale, "the broker does not answer",
		},
		"a pool at its minimum is not limited": {atMinimum, v1alpha1.ConditionScalingLimited, metav1.ConditionFalse, v1alpha1.ReasonWithinBounds, ""},
		"a pool that needs more than its maximum is limited": {
			atMaximum, v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, "MaxReplicas", "25 recommended for an assumed service time of 1s, staying at 2: maxReplicas is 2",
		},
	} {
		t.Run(title, func(t *testing.T) {
			c := meta.FindStatusCondition(Decide(row.pool.Observation).Status.Conditions, row.condition)
			require.True(t, c.Status == row.want && c.Reason == row.reason && c.Message == row.message, "%s is %s, %s: %q", c.Type, c.Status, c.Reason, c.Message)
		})
	}
}

// Its Queue is often not ready yet: nobody knows then how many workers Policies allow.
func TestANewPoolOfFixedSizeIsNotLimited(t *testing.T) {
	decided := Decide(withMissingQueue(newTestPool(2)).Observation)
	c := meta.FindStatusCondition(decided.Status.Conditions, v1alpha1.ConditionScalingLimited)
	require.True(t, c == nil, "%+v", c)
}

func TestAnIdlePoolMeetsItsObjectiveWhateverItsLastMessagesWaited(t *testing.T) {
	for title, row := range map[string]struct {
		stats  QueueStats
		inside int64
		want   metav1.ConditionStatus
	}{
		"idle":                        {QueueStats{WaitP95: new(time.Hour)}, 0, metav1.ConditionTrue},
		"busy after a long wait":      {QueueStats{WaitP95: new(time.Hour)}, 1, metav1.ConditionFalse},
		"busy after a short wait":     {QueueStats{WaitP95: new(time.Second)}, 1, metav1.ConditionTrue},
		"busy and nothing is waiting": {QueueStats{}, 1, metav1.ConditionTrue},
	} {
		t.Run(title, func(t *testing.T) {
			s := autoscaledPool(1)
			s.Pool.Spec.Autoscaling.WaitP95 = durationSeconds(30)
			row.stats.InFlightKnown, s.Stats = true, &row.stats
			s.withInFlight("worker:1-0", row.inside)
			require.Equal(t, row.want, Decide(s.Observation).Status.ObjectiveMet)
		})
	}
}
