package sequence

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestEventsOfAStory(t *testing.T) {
	tests := map[string]struct {
		sj      *testbuilder.SequentialJobBuilder
		happens func(*testEnv)
		want    []string
	}{
		"success, seen running": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) {
				s.after(time.Minute)
				s.succeed("build")
			},
			want: []string{"JobStarted", "JobCompleted", "Completed"},
		},
		"success, seen only at its end": {
			sj:      testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) { s.succeed("build") },
			want:    []string{"JobStarted", "JobCompleted", "Completed"},
		},
		"failure": {
			sj:      testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			happens: func(s *testEnv) { s.fail("build") },
			want:    []string{"JobStarted", "JobFailed", "Failed"},
		},
		"a changed spec": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			happens: func(s *testEnv) {
				s.change(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "new" })
				s.reconcile()
			},
			want: []string{"JobStarted", "SpecChanged"},
		},
		"a hold": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Suspend(),
			happens: func(s *testEnv) {
				s.change(resume)
				s.reconcile()
			},
			want: []string{"Suspended", "SpecChanged", "Resumed", "JobStarted"},
		},
		"a lost Job": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) {
				s.after(time.Minute)
				s.lose("build")
			},
			want: []string{"JobStarted", "JobFailed", "Failed"},
		},
		"a lost Job that is made again": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").RerunLostJobs(),
			happens: func(s *testEnv) {
				s.after(time.Minute)
				s.lose("build")
				s.succeed("build")
			},
			want: []string{"JobStarted", "JobLost", "JobStarted", "JobCompleted", "Completed"},
		},
		"a rerun": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) {
				s.fail("build")
				s.change(askRerun("Failed"))
				s.reconcile()
				s.succeed("build")
			},
			want: []string{"JobStarted", "JobFailed", "Failed", "RerunStarted", "JobStarted", "JobCompleted", "Completed"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, test.sj)
			test.happens(s)
			s.after(time.Minute)
			s.after(time.Minute) // in which nothing is told again
			s.wantEvents(test.want...)
		})
	}
}

func TestWhatEventsSay(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.fail("build")
	name := s.job("build").Name
	want := []core.Event{
		{Type: "Normal", Reason: "JobStarted", Action: "Run", Message: "Created Job " + name + " for step build", Routine: true},
		{Type: "Warning", Reason: "JobFailed", Action: "Run", Message: "Step build failed: BackoffLimitExceeded: Job has reached the specified backoff limit"},
		{Type: "Warning", Reason: "Failed", Action: "Run", Message: `step "build" failed: BackoffLimitExceeded: Job has reached the specified backoff limit`},
	}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Errorf("events (-want, +got):\n%s", diff)
	}
}

func TestTerminatedEventFollowsTheEndOfTheLastJob(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.wantEvents(v1alpha1.EventJobStarted)
	s.remove()
	s.wantEvents()
	s.collect()
	s.wantEvents(v1alpha1.EventTerminated)
}
