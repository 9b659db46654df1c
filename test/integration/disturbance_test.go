package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func (s *sequenceTest) deleteChildJob(job *batchv1.Job) {
	s.t.Helper()
	mustDelete(s.t, job, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

func TestNameConflictIsReportedAndTheOtherJobKept(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("name-conflict", "").Step("a").Suspend().Obj())
	s.waitForPhase(v1alpha1.PhaseSuspended)
	other := s.plannedJob()
	other.OwnerReferences, other.Labels = nil, nil
	other.Spec.Template.Labels = nil
	mustCreate(t, other)
	s.patchSequence(func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false })
	s.waitUntil("the conflict", func(*v1alpha1.SequentialJob) bool {
		status, reason := s.readCondition(v1alpha1.ConditionBlocked)
		return status == metav1.ConditionTrue && reason == v1alpha1.ReasonNameTaken
	})
	s.wantEvent(v1alpha1.EventNameConflict)
	version := other.ResourceVersion
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil || other.Generation != 1 || !other.DeletionTimestamp.IsZero() {
		t.Fatalf("the other Job was changed (version %s to %s): %v", version, other.ResourceVersion, err)
	}
	s.deleteChildJob(other)
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
}

// plannedJob returns the Job that sequence.Decide would create next.
func (s *sequenceTest) plannedJob() *batchv1.Job {
	s.t.Helper()
	sj := s.readSequence().DeepCopy()
	sj.Spec.Suspend = false
	decision := sequentialjob.Decide(sequentialjob.Observation{SequentialJob: sj, Answers: sequentialjob.Answers{DryRun: &sequentialjob.DryRunResult{}}})
	if decision.CreateJob == nil {
		s.t.Fatalf("no Job is planned: %+v", decision)
	}
	return decision.CreateJob
}
