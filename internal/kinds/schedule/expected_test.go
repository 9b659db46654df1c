package schedule

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheRunOfTheNextTimeIsCreatedBeforeItsTimeIsRecorded(t *testing.T) {
	s := newScenario(t).at(0)
	decision := Decide(Observation{Schedule: s.schedule, Now: created.Add(time.Hour)})
	require.True(t, decision.CreateRun != nil && decision.CreateRun.Name == RunName(s.schedule, created.Add(time.Hour)) && !decision.StatusChanged,
		"decision %+v, want one that creates the run and records nothing", decision)
}

// The operator crashed after it created the run of 13:00. Its cache does not have the run yet.
func TestARunThatIsNotRecordedIsCountedWhateverChanged(t *testing.T) {
	for title, change := range map[string]func(s *v1alpha1.Schedule) (since time.Duration){
		"nothing":               func(*v1alpha1.Schedule) time.Duration { return time.Hour },
		"a suspension":          func(s *v1alpha1.Schedule) time.Duration { s.Spec.Suspend = true; return time.Hour },
		"the deadline":          func(s *v1alpha1.Schedule) time.Duration { deadline(60)(s); return 90 * time.Minute },
		"a later time":          func(*v1alpha1.Schedule) time.Duration { return 2 * time.Hour },
		"the schedule":          func(s *v1alpha1.Schedule) time.Duration { s.Spec.Schedule = "30 * * * *"; return time.Hour },
		"the clock as well":     func(s *v1alpha1.Schedule) time.Duration { s.Spec.Schedule = "30 * * * *"; return 50 * time.Minute },
		"the policy for others": func(s *v1alpha1.Schedule) time.Duration { concurrency(v1alpha1.ConcurrencyForbid)(s); return time.Hour },
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t).at(0)
			due := created.Add(time.Hour)
			run := Run{Name: RunName(s.schedule, due), UID: types.UID("run"), ScheduledTime: due, CreationTime: due}
			since := change(s.schedule)
			// Creating the run again finds it. Anything else has to ask whether it exists.
			decision := Decide(Observation{Schedule: s.schedule, Now: created.Add(since)})
			if creates := decision.CreateRun != nil && decision.CreateRun.Name == run.Name && !decision.StatusChanged; creates {
				s.runs = append(s.runs, run)
				decision = Decide(Observation{Schedule: s.schedule, Runs: s.runs, Now: created.Add(since)})
			} else if decision.Question != run.Name {
				t.Fatalf("decision %+v, want a question", decision)
			} else {
				decision = Decide(Observation{Schedule: s.schedule, Now: created.Add(since), Answers: map[string]*Run{run.Name: &run}})
			}
			require.True(t, decision.Status.Runs == 1 && decision.Status.Missed == 0 && decision.Started != nil,
				"%d runs, %d missed", decision.Status.Runs, decision.Status.Missed)
		})
	}
}
