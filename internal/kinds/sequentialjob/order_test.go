package sequentialjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestStepsRunOneAfterAnother(t *testing.T) {
	runScenarios(t, map[string]scenario{
		"and the finally steps follow": {sequence("build", "test").Finally("cleanup"), story{
			created("build"), phase(v1alpha1.PhasePending, v1alpha1.ReasonWaiting),
			wait(time.Minute), created("build"), steps("build: Starting", "test: Pending", "cleanup: Pending"),
			succeed("build"), created("build", "test"),
			succeed("test"), created("build", "test", "cleanup"), phase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunningFinally),
			succeed("cleanup"), steps("build: Succeeded", "test: Succeeded", "cleanup: Succeeded"),
			phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
		"unless another controller manages them": {sequence("build").ManagedBy("acme.io/controller"), story{
			created(), hasFinalizer(false), func(s *testEnv) {
				if s.sj.Status.Run != 0 {
					s.t.Errorf("status %+v", s.sj.Status)
				}
			},
		}},
		"this operator may be named": {sequence("build").ManagedBy(v1alpha1.SequentialJobManager), story{created("build")}},
	})
}

func TestOutcomeAndNextStartAreOneWrite(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	testbuilder.Job(s.newestJob("build")).Complete(s.now)

	decision := s.decide(nil)

	if decision.CreateJob == nil || !decision.StatusChanged {
		t.Fatalf("want the next Job and a status to record, got %v", decision.CreateJob)
	}
	if got := findStep(decision.Status.Steps, "build").Phase; got != v1alpha1.StepSucceeded {
		t.Errorf("the status to record before has build %s", got)
	}
}

func TestOrphanJobIsDeletedBeforeTheNextStepStarts(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	stray := testbuilder.Job(s.newestJob("build").DeepCopy()).Created("stray", s.now).Obj()
	stray.Name = "a-forgotten"
	s.jobs = append([]*batchv1.Job{stray}, s.jobs...)

	if decision := s.succeedStep("build"); decision.CreateJob != nil || len(decision.DeleteJobs) != 1 || decision.DeleteJobs[0].Name != "a-forgotten" {
		t.Errorf("want only the stray deleted, got %v, %v", decision.CreateJob, decision.DeleteJobs)
	}
	s.pass(removeJobs, created("build", "test"))
}
