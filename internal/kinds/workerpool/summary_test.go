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
