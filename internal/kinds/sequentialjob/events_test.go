package sequentialjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestEventsOfARun(t *testing.T) {
	tests := map[string]struct {
		sj      *testbuilder.SequentialJobBuilder
		happens func(*testEnv)
		want    []string
	}{
		"success, observed while running": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) {
				s.reconcileAfter(time.Minute)
				s.succeedStep("build")
			},
			want: []string{"JobStarted", "JobCompleted", "Completed"},
		},
		"success, observed only at the end": {
			sj:      testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) { s.succeedStep("build") },
			want:    []string{"JobStarted", "JobCompleted", "Completed"},
		},
		"failure": {
			sj:      testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			happens: func(s *testEnv) { s.failStep("build") },
			want:    []string{"JobStarted", "JobFailed", "Failed"},
		},
		"a changed spec": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Step("test"),
			happens: func(s *testEnv) {
				s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[1].Image = "new" })
				s.reconcile()
			},
			want: []string{"JobStarted", "SpecChanged"},
		},
		"suspension and resumption": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").Suspend(),
			happens: func(s *testEnv) {
				s.changeSpec(setSuspendFalse)
				s.reconcile()
			},
			want: []string{"Suspended", "SpecChanged", "Resumed", "JobStarted"},
		},
		"a lost Job": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) {
				s.reconcileAfter(time.Minute)
				s.loseJob("build")
			},
			want: []string{"JobStarted", "JobFailed", "Failed"},
		},
		"a lost Job that is replaced": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build").RerunLostJobs(),
			happens: func(s *testEnv) {
				s.reconcileAfter(time.Minute)
				s.loseJob("build")
				s.succeedStep("build")
			},
			want: []string{"JobStarted", "JobLost", "JobStarted", "JobCompleted", "Completed"},
		},
		"a rerun": {
			sj: testbuilder.SequentialJob("a", "ns").Step("build"),
			happens: func(s *testEnv) {
				s.failStep("build")
				s.changeSpec(requestRerun("Failed"))
				s.reconcile()
				s.succeedStep("build")
			},
			want: []string{"JobStarted", "JobFailed", "Failed", "RerunStarted", "JobStarted", "JobCompleted", "Completed"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, test.sj)
			test.happens(s)
			s.reconcileAfter(time.Minute)
			s.reconcileAfter(time.Minute) // emits no event twice
			s.wantEvents(test.want...)
		})
	}
}

func TestEventMessages(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build"))
	s.failStep("build")
	name := s.newestJob("build").Name
	want := []decision.Event{
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
	s.deleteSequentialJob()
	s.wantEvents()
	s.removeDeletedJobs()
	s.wantEvents(v1alpha1.EventTerminated)
}
