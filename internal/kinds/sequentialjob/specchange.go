package sequentialjob

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// observeSpec updates the status's steps from a new or changed spec: started steps are immutable, the others follow the
// spec.
func (e *evaluation) observeSpec() {
	switch {
	case e.status.Run == 0:
		e.status.Run = 1
		if e.spec.Rerun != nil {
			e.status.RerunID = e.spec.Rerun.ID // an id that is set at creation requests nothing
		}
	case e.SequentialJob.Generation == e.status.ObservedGeneration:
		return
	}
	e.status.ObservedGeneration = e.SequentialJob.Generation
	if e.status.Run == 1 && !hasRunStarted(&e.status) {
		e.status.Parameters = runParameters(e.spec, nil)
	}
	accepted := decision.True(v1alpha1.ReasonAccepted, "")
	if !IsFinished(&e.status) {
		accepted = specValidity(e.SequentialJob)
		if violations := ImmutabilityViolations(nil, e.spec, &e.status); len(violations) > 0 {
			accepted = decision.False(v1alpha1.ReasonStartedStepChanged, violations.ToAggregate().Error())
		}
		e.status.Steps = mergeSteps(e.spec, e.status.Steps)
	}
	e.setCondition(v1alpha1.ConditionSpecAccepted, accepted)
}

// specValidity returns the condition SpecAccepted of a spec of which no step has started.
func specValidity(sj *v1alpha1.SequentialJob) decision.State {
	if errs := Validate(sj); len(errs) > 0 {
		return decision.False(v1alpha1.ReasonInvalid, errs.ToAggregate().Error())
	}
	return decision.True(v1alpha1.ReasonAccepted, "")
}

// hasForbiddenImage reports whether a Policy does not allow an image of a step's Job. The step then waits, because a
// Policy may change.
func (e *evaluation) hasForbiddenImage(job *batchv1.Job) bool {
	err := policy.CheckImages(&job.Spec.Template.Spec, &e.Policies)
	if err != nil {
		e.forbiddenImages = fmt.Sprintf("step %q: %s", job.Labels[v1alpha1.LabelStep], err)
	}
	return err != nil
}

// rejectRun finishes a run before its first step. Steps with finally are skipped too, because there is nothing to clean
// up.
func rejectRun(status *v1alpha1.SequentialJobStatus, now metav1.Time) {
	skipWaitingSteps(status.Steps, v1alpha1.ReasonInvalid, func(string) bool { return false })
	status.CompletionTime = now.DeepCopy()
}

func isSpecRejected(status *v1alpha1.SequentialJobStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionSpecAccepted)
}

func startedStepChanged(at int, step string) *field.Error {
	return field.Forbidden(field.NewPath("spec", "containers").Index(at),
		fmt.Sprintf("step %q has started: it cannot be changed; change later steps, or wait until the run has finished", step))
}

// reportChangedStep reports that the spec changes a step whose Job is not replaced, because a container of it may have run.
func (e *evaluation) reportChangedStep(step *v1alpha1.StepStatus) {
	at := slices.IndexFunc(e.spec.Containers, func(s v1alpha1.Step) bool { return s.Name == step.Name })
	if at >= 0 && !isSpecRejected(&e.status) && hasStepChanged(step, nil, &e.spec.Containers[at]) {
		e.setCondition(v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonStartedStepChanged, startedStepChanged(at, step.Name).Error()))
	}
}

// isSpecInvalid reports whether the spec cannot be used, not only for a started step.
func isSpecInvalid(status *v1alpha1.SequentialJobStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSpecAccepted)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonStartedStepChanged
}

// mergeSteps returns the run's steps: the recorded steps that have started, then the steps of the spec that follow the
// last started step.
func mergeSteps(spec *v1alpha1.SequentialJobSpec, recorded []v1alpha1.StepStatus) []v1alpha1.StepStatus {
	steps := make([]v1alpha1.StepStatus, 0, len(spec.Containers))
	after := 0
	for _, record := range recorded {
		if canStart(record.Phase) {
			continue
		}
		steps = append(steps, record)
		if at := slices.IndexFunc(spec.Containers, func(s v1alpha1.Step) bool { return s.Name == record.Name }); at >= 0 {
			after = max(after, at+1)
		}
	}
	for i := range spec.Containers[after:] {
		name := spec.Containers[after+i].Name
		if findStep(steps, name) != nil {
			continue
		}
		waiting := v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepPending}
		if record := findStep(recorded, name); record != nil {
			waiting = *record // the step may wait for its next attempt
		}
		steps = append(steps, waiting)
	}
	return steps
}

// ImmutabilityViolations returns an error for each step that started in the current run and that the spec changes,
// removes, renames or moves. A step that waits can be changed: see isCorrectable. before is the spec before the change; nil if unknown.
func ImmutabilityViolations(before, spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) field.ErrorList {
	if status.Run == 0 || IsFinished(status) {
		return nil
	}
	if before == nil {
		before = &v1alpha1.SequentialJobSpec{}
	}
	isFinally := func(name string) bool { // the step may have been changed or removed
		return IsFinally(before, name) || findStepSpec(before, name) == nil && IsFinally(spec, name)
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "containers")
	others := len(withoutFinally(spec))
	// The started steps are the first of those with finally, and the first of the others.
	next, end := map[bool]int{true: others}, map[bool]int{false: others, true: len(spec.Containers)}
	hasFinallyStarted := false
	for i := range status.Steps {
		record := &status.Steps[i]
		finally := isFinally(record.Name)
		hasFinallyStarted = hasFinallyStarted || finally && record.Phase != v1alpha1.StepPending
		if canStart(record.Phase) || (record.Phase == v1alpha1.StepSkipped && !isUnwanted(record)) {
			continue
		}
		at := next[finally]
		switch {
		case at >= end[finally] || spec.Containers[at].Name != record.Name:
			return append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be removed, renamed or moved, and no step can be inserted before it", record.Name)))
		case record.Run == status.Run && !isCorrectable(record) && hasStepChanged(record, findStepSpec(before, record.Name), &spec.Containers[at]):
			errs = append(errs, startedStepChanged(at, record.Name))
		}
		next[finally]++
	}
	if at := next[false]; hasFinallyStarted && at < others && findStep(status.Steps, spec.Containers[at].Name) == nil {
		errs = append(errs, field.Forbidden(path.Index(at), "a step with finally has started: no step can be added before it"))
	}
	return errs
}
