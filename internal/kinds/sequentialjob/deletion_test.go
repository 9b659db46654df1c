package sequentialjob

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestDeletionStopsTheRunningStepFirst(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
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
	s := startRun(t, sequence("build"))
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	decision := Decide(Observation{SequentialJob: s.sj, Now: s.now}) // the cache shows no Job
	if decision.Question == nil || !decision.Question.AllJobs || decision.HasActions() {
		t.Errorf("want a live list before anything is done, got %+v", decision)
	}
}

func TestDeletionDeletesOnlyJobsThatMayRun(t *testing.T) {
	for title, test := range map[string]struct {
		scenario
		deleted int // Jobs
	}{
		"one that the cache does not show": {scenario{sequence("build"), story{func(s *testEnv) { s.uncached[s.newestJob("build").Name] = true }}}, 1},
		"none that has ended, and no step starts": {scenario{sequence("build", "test").Finally("cleanup"), story{
			func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Complete(s.now) },
		}}, 0},
		"none that the user wants to keep": {scenario{sequence("build"), story{
			func(s *testEnv) { s.sj.Finalizers = append(s.sj.Finalizers, metav1.FinalizerOrphanDependents) },
		}}, 0},
		"none without the finalizer": {scenario{sequence("build").Suspend(), nil}, 0},
	} {
		t.Run(title, func(t *testing.T) {
			d := startRun(t, test.sj).pass(test.story...).deleteSequentialJob()
			if len(d.DeleteJobs) != test.deleted || d.CreateJob != nil || d.NeedsFinalizer != (test.deleted > 0) {
				t.Errorf("want %d Jobs deleted, got %+v", test.deleted, d)
			}
		})
	}
}
