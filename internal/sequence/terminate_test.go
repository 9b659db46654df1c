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
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test"))
	plan := s.remove()
	if len(plan.Delete) != 1 || !plan.Finalizer || plan.Terminated {
		t.Errorf("want the Job deleted and the finalizer kept, got %+v", plan)
	}
	if s.sj.Status.Phase != v1alpha1.PhaseTerminating {
		t.Errorf("want phase Terminating, got %s", s.sj.Status.Phase)
	}
	if plan := s.after(time.Minute); plan.Terminated || !plan.Finalizer {
		t.Error("it does not wait for the Job's Pods")
	}
	if plan := s.collect(); !plan.Terminated || plan.Finalizer {
		t.Errorf("want the finalizer gone, got %+v", plan)
	}
	s.wantMade("build")
}

// Upstream's finalizer took a list that failed for an empty one.
func TestUpstreamTheFinalizerWaitsForALiveList(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	plan := Decide(Input{SequentialJob: s.sj, Now: s.now}) // the cache shows no Job
	if plan.Ask == nil || !plan.Ask.AllJobs || plan.Terminated || plan.Acts() {
		t.Errorf("want a live list before anything is done, got %+v", plan)
	}
}

func TestAJobThatOnlyALiveListShowsIsDeleted(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.uncached[s.job("build").Name] = true
	if plan := s.remove(); len(plan.Delete) != 1 || plan.Terminated {
		t.Errorf("want the Job deleted, got %+v", plan)
	}
}

func TestDeletionStartsNothing(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup"))
	testbuilder.Job(s.job("build")).Complete(s.now)
	if plan := s.remove(); plan.Create != nil || len(plan.Delete) > 0 || !plan.Terminated {
		t.Errorf("want it gone at once, got %+v", plan)
	}
}

func TestOrphaningKeepsTheRunningJob(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.sj.Finalizers = append(s.sj.Finalizers, metav1.FinalizerOrphanDependents)
	if plan := s.remove(); len(plan.Delete) > 0 || plan.Finalizer {
		t.Errorf("want the Job left alone, got %+v", plan)
	}
}

func TestAFinalizerIsThereOnlyWhileAStepRuns(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	if !slices.Contains(s.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		t.Error("there is none while build runs")
	}
	s.succeed("build")
	if s.sj.Finalizers != nil {
		t.Error("there is one after the run")
	}
}

func TestDeletionWithoutOurFinalizerNeedsNothing(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build").Suspend())
	if plan := s.remove(); plan.Acts() || plan.Ask != nil {
		t.Errorf("want nothing done, got %+v", plan)
	}
}
