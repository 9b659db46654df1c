package workerpool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
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

func withRefusal(s *testPool, class decision.Class) *testPool {
	s.Refusal = &decision.Refusal{Class: class, Kind: "Deployment", Name: "mail-1", Message: "no"}
	return s
}

func withProblem(s *testPool, reason string) *testPool {
	s.Problem = &decision.Problem{Reason: reason, Message: "no"}
	return s
}

func unready(w *Worker) { w.ReadySince = time.Time{} }

// The rows are those of docs/conditions.md.
func TestReadyReconcilingAndStalledOfEachState(t *testing.T) {
	notProven := rollingPool(4, 1).changeWorker("worker:2-0", readyWithoutSuccess(time.Second))
	notProven.Revisions[1].Created = testTime.Add(-time.Minute)
	overQuota := newTestPool(2).withCurrentRevision(1)
	overQuota.Revisions[0].CreationFailure = `pods "mail-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`
	for title, test := range map[string]struct {
		pool                         *testPool
		wantReady                    metav1.ConditionStatus
		wantReconciling, wantStalled bool
		wantReason                   string
		wantKstatus                  status.Status
	}{
		"enough workers are ready":       {newTestPool(2).withCurrentRevision(2), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"scaled to zero":                 {autoscaledPool(0), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"scaled to zero in a rollout":    {rollingPool(0, 0).withReplicas(0), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"metrics are unavailable":        {withoutStats(autoscaledPool(1)), "True", false, false, v1alpha1.ReasonReady, status.CurrentStatus},
		"a rollout is under way":         {notProven, "True", true, false, v1alpha1.ReasonRollingOut, status.InProgressStatus},
		"too few workers are ready":      {newTestPool(2).withCurrentRevision(2).changeWorker("worker:1-0", unready), "False", true, false, v1alpha1.ReasonMinimumUnavailable, status.InProgressStatus},
		"a rollout without progress":     {rollingPool(4, 1).changeWorker("worker:2-0", unready), "True", false, true, v1alpha1.ReasonNoProgress, status.FailedStatus},
		"a rollout with a bad image":     {rollingPool(4, 1).changeWorker("worker:2-0", failImagePull), "True", false, true, v1alpha1.ReasonImagePull, status.FailedStatus},
		"a failed canary":                {canaryPool(10, 0, History{ProvenWorkers: 2, FailureMessage: "AnalysisFailed"}), "True", false, true, v1alpha1.ReasonAnalysisFailed, status.FailedStatus},
		"a missing Queue":                {withMissingQueue(newTestPool(1).withCurrentRevision(1)), "False", true, false, v1alpha1.ReasonQueueNotFound, status.InProgressStatus},
		"a missing Secret":               {withProblem(newTestPool(1), v1alpha1.ReasonSecretNotFound), "False", true, false, v1alpha1.ReasonSecretNotFound, status.InProgressStatus},
		"an invalid Secret":              {withProblem(newTestPool(1), v1alpha1.ReasonSecretInvalid), "False", false, true, v1alpha1.ReasonSecretInvalid, status.FailedStatus},
		"no quota for an object":         {withRefusal(newTestPool(1), decision.QuotaExceeded), "False", true, false, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus},
		"no quota for a Pod":             {overQuota, "False", true, false, v1alpha1.ReasonQuotaExceeded, status.InProgressStatus},
		"an object is invalid":           {withRefusal(newTestPool(1), decision.Invalid), "False", false, true, v1alpha1.ReasonSpecInvalid, status.FailedStatus},
		"an object is denied":            {withRefusal(newTestPool(1), decision.PolicyDenied), "False", false, true, v1alpha1.ReasonPolicyDenied, status.FailedStatus},
		"the name of an object is taken": {withRefusal(newTestPool(1), decision.AlreadyExists), "False", false, true, v1alpha1.ReasonNameTaken, status.FailedStatus},
		"being deleted":                  {withDeletionTimestamp(newTestPool(1).withCurrentRevision(1)), "False", true, false, v1alpha1.ReasonDeleting, status.TerminatingStatus},
	} {
		t.Run(title, func(t *testing.T) {
			d := Decide(test.pool.Observation)
			conditions := d.Status.Conditions
			ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
			reconciling := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReconciling)
			stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled)
			require.Equal(t, [2]string{string(test.wantReady), test.wantReason}, [2]string{string(ready.Status), ready.Reason})
			isRight := reconciling == test.wantReconciling && stalled == test.wantStalled
			require.True(t, isRight, "Reconciling %t, Stalled %t", reconciling, stalled)
			wp := test.pool.Pool.DeepCopy()
			wp.Status = d.Status
			kstatustest.AssertKstatus(t, wp, test.wantKstatus)
		})
	}
}

func TestRefusedPoolKeepsTryingEvery30Seconds(t *testing.T) {
	s := withRefusal(newTestPool(1), decision.QuotaExceeded)
	d := Decide(s.Observation)
	require.True(t, len(d.Resizes) == 1 && d.RequeueAfter == refusalInterval, "%d resizes, again after %s", len(d.Resizes), d.RequeueAfter)
}
