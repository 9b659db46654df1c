package schedule

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision/condition"
)

const (
	// maxWhenCost limits one evaluation of spec.when. A decision evaluates it for up to maxCatchUp times, so that all of them cost as
	// much as an expression in a CRD may.
	maxWhenCost = 10_000
	// maxWhenRuns is the number of ended runs that an expression can read.
	maxWhenRuns = 10
)

// EndedRun is the part of an ended run that spec.when can read.
type EndedRun struct {
	// ScheduledTime is the time that the run was for.
	ScheduledTime time.Time `cel:"scheduledTime"`
	// StartTime is when the run was created, and EndTime when it ended.
	StartTime time.Time `cel:"startTime"`
	EndTime   time.Time `cel:"endTime"`
	// Succeeded is false if the run failed or was stopped.
	Succeeded bool `cel:"succeeded"`
}

var whenEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[EndedRun](), ext.ParseStructTags(true)),
		ext.Strings(),
		cel.Variable("scheduledTime", cel.TimestampType),
		cel.Variable("runs", cel.ListType(cel.ObjectType("schedule.EndedRun"))),
		cel.Variable("active", cel.IntType),
	)
})

// compileWhen returns a function that evaluates spec.when; nil without an expression.
func compileWhen(expression string) (func(variables map[string]any) (bool, error), error) {
	if expression == "" {
		return nil, nil
	}
	env, err := whenEnvironment()
	if err != nil {
		return nil, err
	}
	compiled, err := condition.Compile(env, expression)
	if err != nil {
		return nil, err
	}
	return func(variables map[string]any) (bool, error) {
		return condition.Evaluate(env, compiled, maxWhenCost, variables)
	}, nil
}

// rejection is why spec.when keeps a time from starting: it is false, or failed with the message. It is empty if the time may start.
type rejection struct{ reason, message string }

// rejectionOf returns why spec.when keeps a time from starting now.
func (f *facts) rejectionOf(due time.Time) rejection {
	if f.when == nil {
		return rejection{}
	}
	ended := []EndedRun{}
	for _, run := range slices.Backward(f.Runs) {
		if run.IsFinished && len(ended) < maxWhenRuns {
			ended = append(ended, EndedRun{run.ScheduledTime, run.CreationTime, run.CompletionTime, run.HasSucceeded})
		}
	}
	isTrue, err := f.when(map[string]any{"scheduledTime": due, "runs": ended, "active": len(f.activeRuns())})
	switch {
	case err != nil:
		return rejection{v1alpha1.MissedWhenFailed, "when: " + err.Error()}
	case !isTrue:
		return rejection{reason: v1alpha1.MissedWhenFalse}
	default:
		return rejection{}
	}
}
