package sequence

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/condition"
	"github.com/yardmaster/yardmaster/internal/core"
	"github.com/yardmaster/yardmaster/internal/policy"
)

// observeSpec updates the status's steps from a spec that is new or has changed during the run:
// started steps are immutable, the others follow the new spec.
func (e *evaluation) observeSpec() {
	switch {
	case e.status.Run == 0:
		e.status.Run = 1
		if e.spec.Rerun != nil {
			e.status.RerunID = e.spec.Rerun.ID // set at creation: it requests nothing
		}
	case e.SequentialJob.Generation == e.status.ObservedGeneration:
		return
	}
	e.status.ObservedGeneration = e.SequentialJob.Generation
	accepted := condition.True(v1alpha1.ReasonAccepted, "")
	if !IsFinished(&e.status) {
		accepted = specValidity(e.SequentialJob)
		if violations := ImmutabilityViolations(e.spec, &e.status); len(violations) > 0 {
			accepted = condition.False(v1alpha1.ReasonStartedStepChanged, violations.ToAggregate().Error())
		}
		e.status.Steps = mergeSteps(e.spec, e.status.Steps)
	}
	e.setCondition(v1alpha1.ConditionSpecAccepted, accepted)
}

// specValidity returns the condition SpecAccepted of a spec that may be used from its first step.
func specValidity(sj *v1alpha1.SequentialJob) condition.State {
	if errs := Validate(sj); len(errs) > 0 {
		return condition.False(v1alpha1.ReasonInvalid, errs.ToAggregate().Error())
	}
	return condition.True(v1alpha1.ReasonAccepted, "")
}

// admitRun decides whether steps of the run may be evaluated now. Before its first step, every Job
// is created in a dry run: a mistake in the last step is reported now, not in an hour. After a
// change of the spec during the run, the Jobs of the waiting steps are; a step that would be refused
// is reported, and the run continues until that step.
func (e *evaluation) admitRun() bool {
	hasStarted := hasRunStarted(&e.status)
	isChanged := e.SequentialJob.Generation != e.SequentialJob.Status.ObservedGeneration
	switch {
	case isSpecRejected(&e.status) && !hasStarted:
		rejectRun(&e.status, e.now)
		return false
	case isSpecRejected(&e.status), hasStarted && !isChanged, !hasStarted && e.spec.Suspend:
		return true // startNextStep starts nothing while suspended
	}
	jobs := waitingJobs(e.SequentialJob, &e.status)
	switch {
	case len(jobs) == 0:
		return true
	case !hasStarted && slices.ContainsFunc(jobs, e.hasForbiddenImage):
		return false
	case e.Answers.DryRun == nil:
		e.decision.Question = &Question{DryRun: jobs}
		return false
	}
	return e.admitAfterDryRun(hasStarted)
}

// admitAfterDryRun decides with the result of the dry run, as admitRun does.
func (e *evaluation) admitAfterDryRun(hasStarted bool) bool {
	refusals := e.Answers.DryRun.Refusals
	if permanent := findPermanentRefusal(refusals); permanent != nil {
		message := fmt.Sprintf("step %q: %s", permanent.Step, permanent.Message)
		e.setCondition(v1alpha1.ConditionSpecAccepted, condition.False(v1alpha1.ReasonStepInvalid, message))
		if !hasStarted {
			rejectRun(&e.status, e.now)
		}
		return hasStarted
	}
	next := nextStep(e.status.Steps)
	for i := range refusals {
		if !hasStarted && next != nil && refusals[i].Step == next.Name {
			e.blockedBy = &refusals[i] // a quota has no room for the first step's Job
		}
	}
	return e.blockedBy == nil
}

// hasForbiddenImage reports whether a Policy does not allow an image of a step's Job. The step then
// waits: a Policy may change, and running steps are not affected by it.
func (e *evaluation) hasForbiddenImage(job *batchv1.Job) bool {
	err := policy.CheckImages(&job.Spec.Template.Spec, &e.Policies)
	if err != nil {
		e.forbiddenImages = fmt.Sprintf("step %q: %s", job.Labels[v1alpha1.LabelStep], err)
	}
	return err != nil
}

// rejectRun finishes a run before its first step. Its finally steps are skipped as well: there
// is nothing to clean up.
func rejectRun(status *v1alpha1.SequentialJobStatus, now metav1.Time) {
	skipWaitingSteps(status.Steps, v1alpha1.ReasonInvalid, true)
	status.CompletionTime = now.DeepCopy()
}

// waitingJobs returns the next Jobs of the steps that wait to start.
func waitingJobs(sj *v1alpha1.SequentialJob, status *v1alpha1.SequentialJobStatus) []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range status.Steps {
		step := &status.Steps[i]
		if stepSpec := findStepSpec(&sj.Spec, step.Name); stepSpec != nil && canStart(step.Phase) {
			jobs = append(jobs, stepJob(sj, stepSpec, status.Run, step.Attempt+1))
		}
	}
	return jobs
}

// findPermanentRefusal returns the first refusal that waiting cannot resolve, nil if there is
// none.
func findPermanentRefusal(refusals []core.Refusal) *core.Refusal {
	for i := range refusals {
		if !canRetry(&refusals[i]) {
			return &refusals[i]
		}
	}
	return nil
}

func isSpecRejected(status *v1alpha1.SequentialJobStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionSpecAccepted)
}

// mergeSteps returns the run's steps: the recorded ones that have started, in their order, then
// the spec's steps after the last of those; first of containers, then of finally.
func mergeSteps(spec *v1alpha1.SequentialJobSpec, recorded []v1alpha1.StepStatus) []v1alpha1.StepStatus {
	steps := make([]v1alpha1.StepStatus, 0, len(spec.Containers)+len(spec.Finally))
	containers := spec.Containers
	if hasFinallyStarted(recorded) {
		containers = nil // too late for more steps: only the recorded ones remain
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
			waiting = *record // it may wait for its next attempt
		}
		steps = append(steps, waiting)
	}
	return steps
}

// ImmutabilityViolations returns an error for each step that started in the current run and
// that the spec changes, removes, renames or moves.
func ImmutabilityViolations(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) field.ErrorList {
	if status.Run == 0 || IsFinished(status) {
		return nil
	}
	errs := sectionViolations(field.NewPath("spec", "containers"), spec.Containers, status, false)
	return append(errs, sectionViolations(field.NewPath("spec", "finally"), spec.Finally, status, true)...)
}

func sectionViolations(path *field.Path, section []v1alpha1.Step, status *v1alpha1.SequentialJobStatus, finally bool) field.ErrorList {
	var errs field.ErrorList
	at := 0
	for i := range status.Steps {
		record := &status.Steps[i]
		if record.Finally != finally || canStart(record.Phase) || record.Phase == v1alpha1.StepSkipped {
			continue
		}
		switch {
		case at >= len(section) || section[at].Name != record.Name:
			return append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be removed, renamed or moved, and no step can be inserted before it", record.Name)))
		case record.Run == status.Run && contentHash(&section[at]) != record.SpecHash:
			errs = append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be changed; change later steps, or wait until the run has finished", record.Name)))
		}
		at++
	}
	if !finally && at < len(section) && hasFinallyStarted(status.Steps) && findStep(status.Steps, section[at].Name) == nil {
		errs = append(errs, field.Forbidden(path.Index(at), "finally has started: no step can be added to containers"))
	}
	return errs
}
