package sequentialjob

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestDeletionStopsTheRunningStepFirst(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	if d := s.deleteSequentialJob(); len(d.DeleteJobs) != 1 || s.sj.Status.Phase != v1alpha1.PhaseTerminating {
		t.Errorf("phase %s, want the Job deleted: %+v", s.sj.Status.Phase, d)
	}
	s.pass(wait(time.Minute), hasFinalizer(true), removeJobs, hasFinalizer(false), created("build"))
}

// A failed list must not be treated as an empty one.
func TestFinalizerIsKeptUntilALiveListOfJobs(t *testing.T) {
	s := startRun(t, sequence("build"))
	s.sj.DeletionTimestamp = new(metav1.NewTime(s.now))
	decision := Decide(Observation{SequentialJob: s.sj, Now: s.now}) // the cache shows no Job
	require.True(t, decision.Question != nil && decision.Question.AllJobs && !decision.HasActions(),
		"want a live list before anything is done, got %+v", decision)
}

func TestDeletionDeletesOnlyJobsThatMayRun(t *testing.T) {
	hasEnded := func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Complete(s.now) }
	isOrphaned := func(s *testEnv) { s.sj.Finalizers = append(s.sj.Finalizers, metav1.FinalizerOrphanDependents) }
	for title, test := range map[string]struct {
		sj      *testbuilder.SequentialJobBuilder
		happens func(*testEnv)
		deleted int // Jobs
	}{
		"one that the cache does not show":        {sequence("build"), func(s *testEnv) { s.uncached[s.newestJob("build").Name] = true }, 1},
		"none that has ended, and no step starts": {sequence("build").Finally("clean"), hasEnded, 0},
		"none that the user wants to keep":        {sequence("build"), isOrphaned, 0},
		"none without the finalizer":              {sequence("build").Suspend(), func(*testEnv) {}, 0},
	} {
		t.Run(title, func(t *testing.T) {
			d := startRun(t, test.sj).pass(test.happens).deleteSequentialJob()
			require.True(t, len(d.DeleteJobs) == test.deleted && d.CreateJob == nil && d.NeedsFinalizer == (test.deleted > 0),
				"want %d Jobs deleted, got %+v", test.deleted, d)
		})
	}
}
