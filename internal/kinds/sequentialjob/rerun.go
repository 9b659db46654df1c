package sequentialjob

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

func (e *evaluation) startRequestedRerun() {
	if !IsFinished(&e.status) || !IsRerunRequested(e.spec, &e.status) {
		return
	}
	from, err := rerunStart(e.spec, &e.status)
	if err != nil {
		e.setCondition(v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonRerunInvalid, err.Error()))
		return
	}
	if warning := RerunWarning(e.spec, &e.status); warning != "" {
		e.decision.Events = append(e.decision.Events, decision.WarningEvent(v1alpha1.EventRerunStarted, actionRun, warning))
	}
	kept := make([]v1alpha1.StepStatus, 0, len(e.status.Steps))
	for i := range e.spec.Containers[:from] {
		kept = append(kept, *findStep(e.status.Steps, e.spec.Containers[i].Name))
	}
	e.status.Run++
	e.status.RerunID = e.spec.Rerun.ID
	e.status.Approval = nil
	e.status.StartTime, e.status.CompletionTime, e.status.DeadlineExceededTime = nil, nil, nil
	e.status.Steps = mergeSteps(e.spec, kept)
	e.status.Parameters = runParameters(e.spec, e.spec.Rerun)
	e.setCondition(v1alpha1.ConditionSpecAccepted, specValidity(e.SequentialJob))
}

// IsRerunRequested reports whether the spec requests a rerun that the status does not record.
func IsRerunRequested(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) bool {
	return spec.Rerun != nil && spec.Rerun.ID != status.RerunID
}

// CheckRerun returns an error if a finished run cannot be rerun as the spec requests.
func CheckRerun(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) error {
	_, err := rerunStart(spec, status)
	return err
}

// RerunWarning says which parameters of a requested rerun are not those with which the steps ran whose outcomes it keeps; empty if it
// keeps none, or all parameters are the same.
func RerunWarning(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) string {
	from, err := rerunStart(spec, status)
	if err != nil || from == 0 {
		return ""
	}
	var changed []string
	for _, p := range runParameters(spec, spec.Rerun) {
		if !slices.Contains(status.Parameters, p) {
			changed = append(changed, p.Name)
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return fmt.Sprintf("the steps up to %q keep their outcomes and outputs, which come from other values of the parameters %s; rerun from Start to replace them",
		spec.Containers[from-1].Name, strings.Join(changed, ", "))
}

// rerunStart returns the index in containers of the rerun's first step. Earlier steps keep their outcomes, so isDone
// must be true for each.
func rerunStart(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	from, err := requestedStart(spec, status)
	if err != nil {
		return 0, err
	}
	for i := range spec.Containers[:from] {
		name := spec.Containers[i].Name
		if !isDone(findStep(status.Steps, name)) {
			return 0, fmt.Errorf("cannot rerun from step %q: step %q before it has not succeeded", spec.Containers[from].Name, name)
		}
	}
	return from, nil
}

func requestedStart(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	switch spec.Rerun.From {
	case v1alpha1.RerunFromStart:
		return 0, nil
	case v1alpha1.RerunFromFailed, "":
		return firstFailureIndex(spec, status)
	}
	at := slices.IndexFunc(withoutFinally(spec), func(s v1alpha1.Step) bool { return s.Name == spec.Rerun.From })
	if at < 0 {
		return 0, fmt.Errorf("cannot rerun from step %q: no step without finally has this name", spec.Rerun.From)
	}
	return at, nil
}

// firstFailureIndex returns the index of the first step that failed the run or did not run; else of the first step with
// a tolerated failure; else, if only a step with finally failed, the index of the first such step.
func firstFailureIndex(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	steps := withoutFinally(spec)
	isUnfinished := func(s v1alpha1.Step) bool { return !isDone(findStep(status.Steps, s.Name)) }
	if at := slices.IndexFunc(steps, isUnfinished); at >= 0 {
		return at, nil
	}
	isTolerated := func(s v1alpha1.Step) bool { return findStep(status.Steps, s.Name).Tolerated }
	if at := slices.IndexFunc(steps, isTolerated); at >= 0 {
		return at, nil
	}
	if slices.ContainsFunc(status.Steps, func(s v1alpha1.StepStatus) bool { return s.Phase == v1alpha1.StepFailed }) {
		return len(steps), nil
	}
	return 0, errors.New("cannot rerun from Failed: no step failed; set from to Start or to a step's name")
}
