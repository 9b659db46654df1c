package sequence

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestDeletionEndsTheRunningStepFirst(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	decision := s.remove()
	if len(decision.DeleteJobs) != 1 || !decision.NeedsFinalizer {
		t.Errorf("want the Job deleted and the finalizer kept, got %+v", decision)
	}
	if s.sj.Status.Phase != v1alpha1.PhaseTerminating {
		t.Errorf("want phase Terminating, got %s", s.sj.Status.Phase)
	}
	if decision := s.after(time.Minute); !decision.NeedsFinalizer {
		t.Error("it does not wait for the Job's Pods")
	}
	if decision := s.collect(); decision.NeedsFinalizer {
		t.Errorf("want the finalizer gone, got %+v", decision)
	}
	s.wantMade("build")
}

// Upstream's finalizer took a list that failed for an empty one.
func TestUpstreamTheFinalizerWaitsForALiveList(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	decision := Decide(Observation{SequentialJob: s.sj, Now: s.now}) // the cache shows no Job
	if decision.Question == nil || !decision.Question.AllJobs || decision.HasActions() {
		t.Errorf("want a live list before anything is done, got %+v", decision)
	}
}

func TestAJobThatOnlyALiveListShowsIsDeleted(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.uncached[s.job("build").Name] = true
	if decision := s.remove(); len(decision.DeleteJobs) != 1 || !decision.NeedsFinalizer {
		t.Errorf("want the Job deleted, got %+v", decision)
	}
}

func TestDeletionStartsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	testbuilder.Job(s.job("build")).Complete(s.now)
	if decision := s.remove(); decision.CreateJob != nil || len(decision.DeleteJobs) > 0 || decision.NeedsFinalizer {
		t.Errorf("want it gone at once, got %+v", decision)
	}
}

func TestOrphaningKeepsTheRunningJob(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.Finalizers = append(s.sj.Finalizers, metav1.FinalizerOrphanDependents)
	if decision := s.remove(); len(decision.DeleteJobs) > 0 || decision.NeedsFinalizer {
		t.Errorf("want the Job left alone, got %+v", decision)
	}
}

func TestAFinalizerIsThereOnlyWhileAStepRuns(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	if !slices.Contains(s.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		t.Error("there is none while build runs")
	}
	s.succeed("build")
	if s.sj.Finalizers != nil {
		t.Error("there is one after the run")
	}
}

func TestDeletionWithoutOurFinalizerNeedsNothing(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
	if decision := s.remove(); decision.HasActions() || decision.Question != nil {
		t.Errorf("want nothing done, got %+v", decision)
	}
}
