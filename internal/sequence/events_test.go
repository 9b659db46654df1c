package sequence

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestEventsOfAStory(t *testing.T) {
	tests := map[string]struct {
		sj      *testbuilder.SequentialJobBuilder
		happens func(*story)
		want    []string
	}{
		"success, seen running": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *story) {
				s.after(time.Minute)
				s.succeed("build")
			},
			want: []string{"JobStarted", "JobCompleted", "Completed"},
		},
		"success, seen only at its end": {
			sj:      testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *story) { s.succeed("build") },
			want:    []string{"JobStarted", "JobCompleted", "Completed"},
		},
		"failure": {
			sj:      testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			happens: func(s *story) { s.fail("build") },
			want:    []string{"JobStarted", "JobFailed", "Failed"},
		},
		"a changed spec": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			happens: func(s *story) {
				s.change(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "new" })
				s.pass()
			},
			want: []string{"JobStarted", "SpecChanged"},
		},
		"a hold": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Suspend(),
			happens: func(s *story) {
				s.change(resume)
				s.pass()
			},
			want: []string{"Suspended", "SpecChanged", "Resumed", "JobStarted"},
		},
		"a lost Job": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *story) {
				s.after(time.Minute)
				s.lose("build")
			},
			want: []string{"JobStarted", "JobFailed", "Failed"},
		},
		"a lost Job that is made again": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").RerunLostJobs(),
			happens: func(s *story) {
				s.after(time.Minute)
				s.lose("build")
				s.succeed("build")
			},
			want: []string{"JobStarted", "JobLost", "JobStarted", "JobCompleted", "Completed"},
		},
		"a rerun": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *story) {
				s.fail("build")
				s.change(askRerun("Failed"))
				s.pass()
				s.succeed("build")
			},
			want: []string{"JobStarted", "JobFailed", "Failed", "RerunStarted", "JobStarted", "JobCompleted", "Completed"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := begin(t, test.sj)
			test.happens(s)
			s.after(time.Minute)
			s.after(time.Minute) // in which nothing is told again
			s.wantEvents(test.want...)
		})
	}
}

func TestWhatEventsSay(t *testing.T) {
	s := begin(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.fail("build")
	name := s.job("build").Name
	want := []Event{
		{Type: "Normal", Reason: "JobStarted", Action: "Run", Message: "step build: Job " + name, Routine: true},
		{Type: "Warning", Reason: "JobFailed", Action: "Run", Message: "step build: BackoffLimitExceeded: Job has reached the specified backoff limit"},
		{Type: "Warning", Reason: "Failed", Action: "Run", Message: `step "build" failed: BackoffLimitExceeded: Job has reached the specified backoff limit`},
	}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Errorf("events (-want, +got):\n%s", diff)
	}
}

func TestTheTerminatedEvent(t *testing.T) {
	if got := TerminatedEvent(); got.Reason != v1alpha1.EventTerminated || got.Type != "Normal" {
		t.Errorf("got %+v", got)
	}
}
