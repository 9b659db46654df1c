package sequence

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// The waits between tries at something that a quota or a taken name bars: as long again
// as it has lasted, between these.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// summarise derives counts, progress, conditions and phase from the steps.
func (d *decision) summarise() {
	d.status.State = countSteps(d.status.Steps)
	d.status.Progress = d.progress()
	d.summariseBlocked()
	d.summariseSuspended()
	d.summariseOutcome()
}

func countSteps(steps []v1alpha1.StepStatus) v1alpha1.StepCounts {
	var counts v1alpha1.StepCounts
	for i := range steps {
		switch {
		case isActive(steps[i].Phase):
			counts.Active++
		case steps[i].Phase == v1alpha1.StepSucceeded:
			counts.Succeeded++
		case steps[i].Phase == v1alpha1.StepFailed:
			counts.Failed++
		}
	}
	return counts
}

func (d *decision) progress() v1alpha1.Progress {
	var p v1alpha1.Progress
	failed := d.failure()
	for i := range d.status.Steps {
		step := &d.status.Steps[i]
		index := int32(i)
		switch {
		case step.Phase == v1alpha1.StepSucceeded:
			p.CompletedIndices = append(p.CompletedIndices, index)
		case p.CurrentIndex == nil && (isActive(step.Phase) || step.Phase == v1alpha1.StepPending):
			p.CurrentIndex, p.CurrentStep = new(index), step.Name
		}
		if step == failed {
			p.FailedIndex, p.FailureReason = new(index), step.Reason
		}
	}
	p.Display = fmt.Sprintf("%d/%d", len(p.CompletedIndices), len(d.status.Steps))
	if p.FailureReason == "" && d.finished() && !d.completed() {
		p.FailureReason = d.failureReason()
	}
	return p
}

// failure is the first step whose failure fails the run, or nil.
func (d *decision) failure() *v1alpha1.StepStatus {
	if step := d.failedStep(false); step != nil {
		return step
	}
	return d.failedStep(true)
}

// completed reports whether every step had its turn and none failed the run.
func (d *decision) completed() bool {
	if d.failure() != nil {
		return false
	}
	for i := range d.status.Steps {
		if d.status.Steps[i].Phase == v1alpha1.StepSkipped {
			return false
		}
	}
	return d.finished()
}

// failureReason and failureMessage say why a finished run failed.
func (d *decision) failureReason() string {
	switch failed := d.failure(); {
	case failed == nil && d.specRejected():
		return meta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionSpecAccepted).Reason
	case failed == nil, failed.Reason == v1alpha1.ReasonDeadlineExceeded && !failed.Finally:
		return v1alpha1.ReasonDeadlineExceeded
	case failed.Finally:
		return v1alpha1.ReasonFinallyFailed
	default:
		return v1alpha1.ReasonStepFailed
	}
}

func (d *decision) failureMessage() string {
	if failed := d.failure(); failed != nil {
		return fmt.Sprintf("step %q failed: %s", failed.Name, joinReason(failed.Reason, failed.Message))
	}
	if d.specRejected() {
		return meta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionSpecAccepted).Message
	}
	return "the run exceeded its activeDeadlineSeconds"
}

// summariseBlocked tells what bars the next step's Job, and plans the next try.
func (d *decision) summariseBlocked() {
	d.setBlocked(v1alpha1.ConditionResourcesUnavailable, RefusedQuota, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonAvailable)
	d.setBlocked(v1alpha1.ConditionNameConflict, RefusedNameTaken, v1alpha1.ReasonNameTaken, v1alpha1.ReasonNoConflict)
}

// setBlocked sets a condition that is there only once it has been True. While the plan
// is to try again, and the try has not been made yet, it stays as it is.
func (d *decision) setBlocked(condition string, kind RefusalKind, reason, cleared string) {
	recorded := meta.FindStatusCondition(d.status.Conditions, condition)
	switch {
	case d.blocked != nil && d.blocked.Kind == kind:
		d.setCondition(condition, metav1.ConditionTrue, reason, d.blocked.Message)
		since := meta.FindStatusCondition(d.status.Conditions, condition).LastTransitionTime
		d.requeueAfter(min(max(d.in.Now.Sub(since.Time), minRetry), maxRetry))
	case recorded != nil && recorded.Status == metav1.ConditionTrue && d.plan.Create == nil:
		d.setCondition(condition, metav1.ConditionFalse, cleared, "")
	}
}

func (d *decision) summariseSuspended() {
	active := d.active()
	switch {
	case !d.sj.Spec.Suspend || d.finished():
		d.setCondition(v1alpha1.ConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonNotSuspended, "")
	case active == nil || active.Phase == v1alpha1.StepSuspended:
		d.setCondition(v1alpha1.ConditionSuspended, metav1.ConditionTrue, v1alpha1.ReasonSuspended, "spec.suspend holds the run")
	default:
		d.setCondition(v1alpha1.ConditionSuspended, metav1.ConditionFalse, v1alpha1.ReasonSuspending, fmt.Sprintf("step %q has not ended yet", active.Name))
	}
}

// summariseOutcome sets Progressing, Available, Failed and the phase, which always
// agree with each other.
func (d *decision) summariseOutcome() {
	progressing, available, failed := metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse
	reason, message := "", ""
	switch active := d.active(); {
	case d.completed():
		available = metav1.ConditionTrue
		d.status.Phase, reason, message = v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted, fmt.Sprintf("%s steps succeeded", d.status.Progress.Display)
	case d.finished():
		failed = metav1.ConditionTrue
		d.status.Phase, reason, message = v1alpha1.PhaseFailed, d.failureReason(), d.failureMessage()
	case meta.IsStatusConditionTrue(d.status.Conditions, v1alpha1.ConditionSuspended):
		d.status.Phase, reason, message = v1alpha1.PhaseSuspended, v1alpha1.ReasonSuspended, "spec.suspend holds the run"
	case active == nil:
		d.status.Phase, reason = v1alpha1.PhasePending, v1alpha1.ReasonWaiting
	default:
		progressing = metav1.ConditionTrue
		d.status.Phase, reason, message = v1alpha1.PhaseRunning, v1alpha1.ReasonRunning, fmt.Sprintf("at step %q", active.Name)
		if active.Finally {
			reason = v1alpha1.ReasonRunningFinally
		}
	}
	d.setCondition(v1alpha1.ConditionProgressing, progressing, reason, message)
	d.setCondition(v1alpha1.ConditionAvailable, available, reason, message)
	if failed == metav1.ConditionTrue {
		d.setCondition(v1alpha1.ConditionFailed, failed, reason, message)
		return
	}
	d.setCondition(v1alpha1.ConditionFailed, failed, v1alpha1.ReasonNotFailed, "")
}

func (d *decision) setCondition(condition string, status metav1.ConditionStatus, reason, message string) {
	const maxConditionMessage = 32768 // of metav1.Condition
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type:               condition,
		Status:             status,
		ObservedGeneration: d.sj.Generation,
		LastTransitionTime: d.now,
		Reason:             reason,
		Message:            truncate(message, maxConditionMessage),
	})
}

// deferrable reports whether the change from before to after tells no more than that a
// step is on its way.
func deferrable(before, after *v1alpha1.SequentialJobStatus) bool {
	if before.Run == 0 {
		return after.Run == 1 && after.Phase == v1alpha1.PhaseRunning &&
			after.State.Succeeded+after.State.Failed == 0 &&
			len(after.Steps) > 0 && after.Steps[0].Phase != v1alpha1.StepStopping &&
			!blockedByAny(after)
	}
	if before.State != after.State || before.Phase != after.Phase {
		return false
	}
	return equality.Semantic.DeepEqual(withoutArrival(before), withoutArrival(after))
}

func blockedByAny(status *v1alpha1.SequentialJobStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionResourcesUnavailable) ||
		meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionNameConflict)
}

// withoutArrival is the status as if no running step had been seen running yet.
func withoutArrival(status *v1alpha1.SequentialJobStatus) *v1alpha1.SequentialJobStatus {
	copied := status.DeepCopy()
	for i := range copied.Steps {
		if step := &copied.Steps[i]; step.Phase == v1alpha1.StepRunning || step.Phase == v1alpha1.StepStarting {
			step.Phase, step.JobUID, step.StartTime = v1alpha1.StepStarting, "", nil
		}
	}
	return copied
}
