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

// rejectRun finishes a run before its first step. Steps of finally are skipped too, because there is nothing to clean
// up.
func rejectRun(status *v1alpha1.SequentialJobStatus, now metav1.Time) {
	skipWaitingSteps(status.Steps, v1alpha1.ReasonInvalid, true)
	status.CompletionTime = now.DeepCopy()
}

func isSpecRejected(status *v1alpha1.SequentialJobStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionSpecAccepted)
}

// mergeSteps returns the run's steps, of containers and then of finally: the recorded steps that have started, then the
// steps of the spec that follow the last started step.
func mergeSteps(spec *v1alpha1.SequentialJobSpec, recorded []v1alpha1.StepStatus) []v1alpha1.StepStatus {
	steps := make([]v1alpha1.StepStatus, 0, len(spec.Containers)+len(spec.Finally))
	containers := spec.Containers
	if hasFinallyStarted(recorded) {
		containers = nil // too late for more steps: only recorded steps remain
	}
	steps = mergeSection(steps, containers, recorded, false)
	return mergeSection(steps, spec.Finally, recorded, true)
}

func mergeSection(steps []v1alpha1.StepStatus, section []v1alpha1.Step, recorded []v1alpha1.StepStatus, finally bool) []v1alpha1.StepStatus {
	after := 0
	for _, record := range recorded {
		if record.Finally != finally || canStart(record.Phase) {
			continue
		}
		steps = append(steps, record)
		if at := slices.IndexFunc(section, func(s v1alpha1.Step) bool { return s.Name == record.Name }); at >= 0 {
			after = max(after, at+1)
		}
	}
	for i := range section[after:] {
		name := section[after+i].Name
		if findStep(steps, name) != nil {
			continue
		}
		waiting := v1alpha1.StepStatus{Name: name, Finally: finally, Phase: v1alpha1.StepPending}
		if record := findStep(recorded, name); record != nil && record.Finally == finally {
			waiting = *record // the step may wait for its next attempt
		}
		steps = append(steps, waiting)
	}
	return steps
}

// ImmutabilityViolations returns an error for each step that started in the current run and that the spec changes,
// removes, renames or moves. before is the spec before the change; nil if unknown.
func ImmutabilityViolations(before, spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) field.ErrorList {
	if status.Run == 0 || IsFinished(status) {
		return nil
	}
	if before == nil {
		before = &v1alpha1.SequentialJobSpec{}
	}
	errs := sectionViolations(field.NewPath("spec", "containers"), before, spec.Containers, status, false)
	return append(errs, sectionViolations(field.NewPath("spec", "finally"), before, spec.Finally, status, true)...)
}

func sectionViolations(path *field.Path, before *v1alpha1.SequentialJobSpec, section []v1alpha1.Step, status *v1alpha1.SequentialJobStatus, finally bool) field.ErrorList {
	var errs field.ErrorList
	at := 0
	for i := range status.Steps {
		record := &status.Steps[i]
		if record.Finally != finally || canStart(record.Phase) || (record.Phase == v1alpha1.StepSkipped && !isUnwanted(record)) {
			continue
		}
		switch {
		case at >= len(section) || section[at].Name != record.Name:
			return append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be removed, renamed or moved, and no step can be inserted before it", record.Name)))
		case record.Run == status.Run && hasStepChanged(record, findStepSpec(before, record.Name), &section[at]):
			errs = append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be changed; change later steps, or wait until the run has finished", record.Name)))
		}
		at++
	}
	if !finally && at < len(section) && hasFinallyStarted(status.Steps) && findStep(status.Steps, section[at].Name) == nil {
		errs = append(errs, field.Forbidden(path.Index(at), "finally has started: no step can be added to containers"))
	}
	return errs
}
