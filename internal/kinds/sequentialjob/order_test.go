package sequentialjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsRunOneAfterAnother(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	s.wantCreated("build")
	s.wantPhase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting)

	s.reconcileAfter(time.Minute)
	s.wantCreated("build")
	s.wantSteps("build: Starting", "test: Pending", "cleanup: Pending")

	s.succeedStep("build")
	s.wantCreated("build", "test")
	s.succeedStep("test")
	s.wantCreated("build", "test", "cleanup")
	s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunningFinally)

	s.succeedStep("cleanup")
	s.wantSteps("build: Succeeded", "test: Succeeded", "cleanup: Succeeded")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestNextStepWaitsForATerminalCondition(t *testing.T) {
	for _, interim := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget, batchv1.JobSuspended} {
		t.Run(string(interim)+" is not one", func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
			testbuilder.Job(s.newestJob("build")).Condition(interim, "", "", s.now)
			s.reconcileAfter(time.Minute)
			s.wantCreated("build")
			s.wantSteps("build: Starting", "test: Pending", "cleanup: Pending")
		})
	}
}

func TestFalseJobConditionIsNotAnOutcome(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	testbuilder.Job(s.newestJob("build")).Complete(s.now)
	conditions := s.newestJob("build").Status.Conditions
	for i := range conditions {
		conditions[i].Status = "False"
	}
	s.reconcileAfter(time.Minute)
	s.wantCreated("build")
}

func TestOutcomeAndNextStartAreOneWrite(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	testbuilder.Job(s.newestJob("build")).Complete(s.now)

	decision := s.decide(nil)

	if decision.CreateJob == nil || !decision.StatusChanged {
		t.Fatalf("want the next Job and a status to record, got %v", decision.CreateJob)
	}
	if got := findStep(decision.Status.Steps, "build").Phase; got != v1alpha1.StepSucceeded {
		t.Errorf("the status to record before has build %s", got)
	}
}

func TestStepsAreJobsOwnedByTheSequentialJob(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	s := newTestEnv(t, sj)
	job := s.reconcile().CreateJob

	want := []metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "SequentialJob", Name: "a", UID: sj.UID, Controller: new(true)}}
	if diff := cmp.Diff(want, job.OwnerReferences); diff != "" {
		t.Errorf("owners (-want, +got):\n%s", diff)
	}
}

// Jobs are identified by their controller, not by labels.
func TestForeignJobWithAStepsNameIsNotChanged(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Obj())
	taken := &decision.Refusal{Class: decision.AlreadyExists, Step: "build", Message: "Job a-build belongs to another owner"}
	s.createRefusals["build"] = taken

	d := s.reconcile()
	s.wantCondition(v1alpha1.ConditionBlocked, "True NameTaken: Job a-build belongs to another owner")
	s.wantEvents(v1alpha1.EventNameConflict)
	if len(d.DeleteJobs) > 0 || d.RequeueAfter <= 0 {
		t.Errorf("want another try later and nothing deleted, got %s, %v", d.RequeueAfter, d.DeleteJobs)
	}

	delete(s.createRefusals, "build")
	s.reconcileAfter(time.Second)
	s.wantCreated("build")
	s.reconcileAfter(time.Minute)
	s.wantCondition(v1alpha1.ConditionBlocked, "False NotBlocked: ")
}

func TestOrphanJobIsDeletedBeforeTheNextStepStarts(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	stray := testbuilder.Job(s.newestJob("build").DeepCopy()).Created("stray", s.now).Obj()
	stray.Name = "a-forgotten"
	s.jobs = append([]*batchv1.Job{stray}, s.jobs...)

	if decision := s.succeedStep("build"); decision.CreateJob != nil || len(decision.DeleteJobs) != 1 || decision.DeleteJobs[0].Name != "a-forgotten" {
		t.Errorf("want only the stray deleted, got %v, %v", decision.CreateJob, decision.DeleteJobs)
	}
	s.removeDeletedJobs()
	s.wantCreated("build", "test")
}

func TestSequentialJobOfAnotherManagerIsIgnored(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").ManagedBy("acme.io/controller"))
	s.wantCreated()
	if s.sj.Status.Run != 0 || s.sj.Finalizers != nil {
		t.Errorf("want it untouched, got %+v", s.sj)
	}
}

func TestManagedByThisOperatorEqualsUnset(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").ManagedBy(v1alpha1.SequentialJobManager))
	s.wantCreated("build")
}
