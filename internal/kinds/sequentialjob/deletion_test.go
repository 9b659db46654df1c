package sequentialjob

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestDeletionStopsTheRunningStepFirst(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	decision := s.deleteSequentialJob()
	if len(decision.DeleteJobs) != 1 || !decision.NeedsFinalizer {
		t.Errorf("want the Job deleted and the finalizer kept, got %+v", decision)
	}
	if s.sj.Status.Phase != v1alpha1.PhaseTerminating {
		t.Errorf("want phase Terminating, got %s", s.sj.Status.Phase)
	}
	if decision := s.reconcileAfter(time.Minute); !decision.NeedsFinalizer {
		t.Error("it does not wait for the Job's Pods")
	}
	if decision := s.removeDeletedJobs(); decision.NeedsFinalizer {
		t.Errorf("want the finalizer removed, got %+v", decision)
	}
	s.wantCreated("build")
}

// A failed list must not be treated as an empty one.
func TestFinalizerIsKeptUntilALiveListOfJobs(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	decision := Decide(Observation{SequentialJob: s.sj, Now: s.now}) // the cache shows no Job
	if decision.Question == nil || !decision.Question.AllJobs || decision.HasActions() {
		t.Errorf("want a live list before anything is done, got %+v", decision)
	}
}

func TestDeletionFindsJobsThatTheCacheDoesNotShow(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.uncached[s.newestJob("build").Name] = true
	if decision := s.deleteSequentialJob(); len(decision.DeleteJobs) != 1 || !decision.NeedsFinalizer {
		t.Errorf("want the Job deleted, got %+v", decision)
	}
}

func TestDeletionStartsNoStep(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	testbuilder.Job(s.newestJob("build")).Complete(s.now)
	if decision := s.deleteSequentialJob(); decision.CreateJob != nil || len(decision.DeleteJobs) > 0 || decision.NeedsFinalizer {
		t.Errorf("want no action and no finalizer, got %+v", decision)
	}
}

func TestOrphanDeletionKeepsTheRunningJob(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.Finalizers = append(s.sj.Finalizers, metav1.FinalizerOrphanDependents)
	if decision := s.deleteSequentialJob(); len(decision.DeleteJobs) > 0 || decision.NeedsFinalizer {
		t.Errorf("want the Job left alone, got %+v", decision)
	}
}

func TestDeletionWithoutFinalizerNeedsNoAction(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
	if decision := s.deleteSequentialJob(); decision.HasActions() || decision.Question != nil {
		t.Errorf("want nothing done, got %+v", decision)
	}
}
