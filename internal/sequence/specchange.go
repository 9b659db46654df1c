package sequence

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
)

// observeSpec updates the status's steps from a spec that is new or has changed.
func (e *evaluation) observeSpec() {
	switch {
	case e.status.Run == 0:
		e.status.Run = 1
		if e.spec.Rerun != nil {
			e.status.RerunID = e.spec.Rerun.ID // set at creation: it requests nothing
		}
		e.observeRunningSpec()
	case e.SequentialJob.Generation == e.status.ObservedGeneration:
		return
	case isFinished(&e.status):
		e.setSpecAccepted(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	default:
		e.observeRunningSpec()
	}
	e.status.ObservedGeneration = e.SequentialJob.Generation
}

// observeRunningSpec applies a spec that changed during the run: started steps are immutable,
// the others follow the new spec.
func (e *evaluation) observeRunningSpec() {
	if violations := ImmutabilityViolations(e.spec, &e.status); len(violations) > 0 {
		e.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonStartedStepChanged, violations.ToAggregate().Error())
	} else {
		e.recordValidation()
	}
	e.status.Steps = mergeSteps(e.spec, e.status.Steps)
}

// recordValidation sets the condition SpecAccepted from the validation of the spec.
func (e *evaluation) recordValidation() {
	if errs := Validate(e.SequentialJob); len(errs) > 0 {
		e.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonInvalid, errs.ToAggregate().Error())
		return
	}
	e.setSpecAccepted(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
}

func (e *evaluation) setSpecAccepted(status metav1.ConditionStatus, reason, message string) {
	e.setCondition(v1alpha1.ConditionSpecAccepted, status, reason, message)
}

// runAdmission is the answer to the question whether steps of the run may be evaluated.
type runAdmission string

const (
	runAdmitted runAdmission = "Admitted"
	// runUndetermined means that a question must be answered first.
	runUndetermined runAdmission = "Undetermined"
	// runBlocked means that a quota has no room for the first step's Job.
	runBlocked runAdmission = "Blocked"
	// runRejected means that the spec cannot be used: the run failed.
	runRejected runAdmission = "Rejected"
)

// admitRun decides whether the run may create Jobs. Before its first step, every Job is created
// in a dry run: a mistake in the last step is reported now, not in an hour.
func (e *evaluation) admitRun() runAdmission {
	switch {
	case hasRunStarted(&e.status):
		return e.checkSpecChange()
	case isSpecRejected(&e.status):
		e.rejectRun()
		return runRejected
	case e.spec.Suspend:
		return runAdmitted // startNextStep starts nothing
	}
	refusals, admission := e.dryRunWaitingSteps()
	if admission != runAdmitted {
		return admission
	}
	if permanent := findPermanentRefusal(refusals); permanent != nil {
		e.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonStepInvalid, refusedStepMessage(permanent))
		e.rejectRun()
		return runRejected
	}
	next := nextStep(e.status.Steps)
	for i := range refusals {
		if next != nil && refusals[i].Step == next.Name {
			e.blockedBy = &refusals[i]
			return runBlocked
		}
	}
	return runAdmitted
}

// checkSpecChange creates the waiting steps' Jobs in a dry run after the spec changed during the
// run. A step that would be refused is reported now; the run continues until that step.
func (e *evaluation) checkSpecChange() runAdmission {
	if e.SequentialJob.Generation == e.SequentialJob.Status.ObservedGeneration || isSpecRejected(&e.status) {
		return runAdmitted
	}
	refusals, admission := e.dryRunWaitingSteps()
	if permanent := findPermanentRefusal(refusals); permanent != nil {
		e.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonStepInvalid, refusedStepMessage(permanent))
	}
	return admission
}

// dryRunWaitingSteps returns what the API server refused of the steps that wait to start. It is
// undetermined until the dry run is made.
func (e *evaluation) dryRunWaitingSteps() ([]core.Refusal, runAdmission) {
	var jobs []*batchv1.Job
	for i := range e.status.Steps {
		step := &e.status.Steps[i]
		if stepSpec := findStepSpec(e.spec, step.Name); stepSpec != nil && canStart(step.Phase) {
			jobs = append(jobs, stepJob(e.SequentialJob, stepSpec, e.status.Run, step.Attempt+1))
		}
	}
	switch {
	case len(jobs) == 0:
		return nil, runAdmitted
	case e.Answers.DryRun == nil:
		e.decision.Question = &Question{DryRun: jobs}
		return nil, runUndetermined
	}
	return e.Answers.DryRun.Refusals, runAdmitted
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

func refusedStepMessage(refusal *core.Refusal) string {
	return fmt.Sprintf("step %q: %s", refusal.Step, refusal.Message)
}

// rejectRun finishes a run before its first step. Its finally steps are skipped as well: there
// is nothing to clean up.
func (e *evaluation) rejectRun() {
	for i := range e.status.Steps {
		if step := &e.status.Steps[i]; canStart(step.Phase) {
			step.Phase, step.Reason = v1alpha1.StepSkipped, v1alpha1.ReasonInvalid
		}
	}
	e.finishRun()
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
	if status.Run == 0 || isFinished(status) {
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
