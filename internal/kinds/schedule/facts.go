package schedule

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// facts are the observation of a Schedule, and the rules that apply to it.
type facts struct {
	// Observation with all known runs, also those that only an answer contains, in their order.
	Observation
	spec   *v1alpha1.ScheduleSpec
	stored *v1alpha1.ScheduleStatus
	now    metav1.Time // in the precision of the API
	// wanted is the timetable of the spec, and inEffect the timetable by which times are due, with its record in the status. They differ
	// until a change of the spec applies. Both are nil if the spec is invalid.
	wanted, inEffect *Timetable
	timetable        *v1alpha1.ScheduleTimetable
	// when evaluates spec.when; nil without one.
	when func(variables map[string]any) (bool, error)
	// invalid is why the spec is invalid, which also happens without a webhook; nil if it is valid.
	invalid *decision.Problem
}

func newFacts(observation Observation) *facts {
	f := &facts{
		Observation: observation, spec: &observation.Schedule.Spec, stored: &observation.Schedule.Status,
		now: *apiTime(observation.Now), timetable: observation.Schedule.Status.Timetable,
	}
	f.Runs = slices.Clone(f.Runs)
	for _, answer := range f.Answers {
		if answer != nil && f.findRun(answer.Name) == nil {
			f.Runs = append(f.Runs, *answer)
		}
	}
	slices.SortFunc(f.Runs, func(a, b Run) int {
		return cmp.Or(a.orderTime().Compare(b.orderTime()), cmp.Compare(a.Name, b.Name))
	})
	var err error
	if f.wanted, err = NewTimetable(f.spec.Cron); err != nil {
		f.invalid = &decision.Problem{Reason: v1alpha1.ReasonScheduleInvalid, Message: "spec." + err.Error()}
		return f
	}
	if f.when, err = compileWhen(f.spec.When); err != nil {
		f.wanted, f.invalid = nil, &decision.Problem{Reason: v1alpha1.ReasonScheduleInvalid, Message: "spec.when: " + err.Error()}
		return f
	}
	if errs := validateRuns(f.Schedule); len(errs) > 0 {
		f.wanted, f.invalid = nil, &decision.Problem{Reason: v1alpha1.ReasonScheduleInvalid, Message: errs.ToAggregate().Error()}
		return f
	}
	switch {
	case f.timetable == nil:
		f.inEffect, f.timetable = f.wanted, &v1alpha1.ScheduleTimetable{Cron: f.spec.Cron, Since: f.Schedule.CreationTimestamp}
	case f.timetable.Cron == f.spec.Cron:
		f.inEffect = f.wanted
	default:
		if f.inEffect, err = NewTimetable(f.timetable.Cron); err != nil { // a time zone that no longer exists
			f.inEffect, f.timetable = f.wanted, &v1alpha1.ScheduleTimetable{Cron: f.spec.Cron, Since: f.now}
		}
	}
	return f
}

// findRun returns nil if no run of this name is known.
func (f *facts) findRun(name string) *Run {
	i := slices.IndexFunc(f.Runs, func(run Run) bool { return run.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Runs[i]
}

// isMissing reports whether the API server has no run of this name. A run that the cache does not have may exist.
func (f *facts) isMissing(name string) bool {
	answer, isKnown := f.Answers[name]
	return isKnown && answer == nil
}

// activeRuns returns the runs that have not finished, including deleted runs that still exist.
func (f *facts) activeRuns() []Run {
	return slices.DeleteFunc(slices.Clone(f.Runs), func(run Run) bool { return run.IsFinished })
}

// runsAlone reports whether no run may start while another is active.
func (f *facts) runsAlone() bool {
	return f.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyForbid || f.spec.ConcurrencyPolicy == v1alpha1.ConcurrencyReplace
}
