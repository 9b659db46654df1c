package sequence

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Manages reports whether this operator is the one to reconcile the object.
func Manages(sj *v1alpha1.SequentialJob) bool {
	return sj.Spec.ManagedBy == nil || *sj.Spec.ManagedBy == v1alpha1.SequentialJobManager
}

// Decide plans the next moves of a SequentialJob.
func Decide(in Input) Plan {
	d := &decision{
		in:     in,
		sj:     in.SequentialJob,
		status: *in.SequentialJob.Status.DeepCopy(),
		now:    metav1.NewTime(in.Now.Truncate(time.Second)), // as it is stored
	}
	switch {
	case !Manages(d.sj):
	case !d.sj.DeletionTimestamp.IsZero():
		d.terminate()
	default:
		d.proceed()
	}
	d.plan.Status = d.status
	if d.plan.Ask == nil {
		d.plan.Changed = !equality.Semantic.DeepEqual(&d.sj.Status, &d.status)
		d.plan.Deferrable = d.plan.Changed && deferrable(&d.sj.Status, &d.status)
		if d.plan.Deferrable && d.plan.Finalizer {
			d.plan.FirstStep = d.startRecord()
		}
	}
	return d.plan
}

// decision is one call of Decide on its way.
type decision struct {
	in     Input
	sj     *v1alpha1.SequentialJob
	status v1alpha1.SequentialJobStatus
	now    metav1.Time
	plan   Plan
	// begun is the step that this very decision starts. No Job can have been made for
	// it but by a pass whose record was lost, and that Job's name is the same.
	begun string
	// blocked is what keeps the next step's Job from being made.
	blocked *Refusal
}

// proceed takes a SequentialJob that is not being deleted as far as it goes.
func (d *decision) proceed() {
	d.observeSpec()
	d.beginRerun()
	if !d.finished() {
		d.run()
	}
	if d.plan.Ask != nil {
		return
	}
	switch {
	case d.rerunAhead():
		d.requeueAfter(0)
	case d.finished():
		d.expire()
	}
	d.summarise()
	d.plan.Finalizer = d.mayRun()
}

// run settles steps and starts the next until one has to be waited for.
func (d *decision) run() {
	d.restartClock()
	if !d.admitted() {
		return
	}
	for {
		if active := d.active(); active != nil && !d.settle(active) {
			return
		}
		if d.deleteStrays() || !d.startNext() {
			return
		}
	}
}

// restartClock begins the run's deadline anew when the run is resumed.
func (d *decision) restartClock() {
	held := meta.IsStatusConditionTrue(d.status.Conditions, v1alpha1.ConditionSuspended)
	if held && !d.sj.Spec.Suspend && d.status.StartTime != nil {
		d.status.StartTime = d.now.DeepCopy()
	}
}

func (d *decision) finished() bool { return d.status.CompletionTime != nil }

// finish ends the run.
func (d *decision) finish() { d.status.CompletionTime = d.now.DeepCopy() }

// active is the step that is under way, or nil.
func (d *decision) active() *v1alpha1.StepStatus {
	for i := range d.status.Steps {
		if isActive(d.status.Steps[i].Phase) {
			return &d.status.Steps[i]
		}
	}
	return nil
}

func isActive(phase v1alpha1.StepPhase) bool {
	switch phase {
	case v1alpha1.StepStarting, v1alpha1.StepRunning, v1alpha1.StepSuspended, v1alpha1.StepStopping:
		return true
	default:
		return false
	}
}

// mayRun reports whether something of the sequence may be running, so that deleting the
// SequentialJob has something to end.
func (d *decision) mayRun() bool {
	active := d.active()
	return active != nil && active.Phase != v1alpha1.StepSuspended
}

// startNext begins the next step, or finishes the run. It reports whether a step began.
func (d *decision) startNext() bool {
	d.skipAfterFailure()
	next := d.nextPending()
	if next == nil {
		d.finish()
		return false
	}
	if d.sj.Spec.Suspend {
		return false
	}
	d.start(next)
	return true
}

func (d *decision) nextPending() *v1alpha1.StepStatus {
	for i := range d.status.Steps {
		if d.status.Steps[i].Phase == v1alpha1.StepPending {
			return &d.status.Steps[i]
		}
	}
	return nil
}

// skipAfterFailure skips the steps that a failure, or the run's deadline, leaves no
// turn. The steps of finally always have theirs.
func (d *decision) skipAfterFailure() {
	reason := ""
	switch {
	case d.failedStep(false) != nil:
		reason = v1alpha1.ReasonPreviousStepFailed
	case !d.sj.Spec.Suspend && d.deadlineLeft() < 0:
		reason = v1alpha1.ReasonDeadlineExceeded
	default:
		return
	}
	for i := range d.status.Steps {
		if step := &d.status.Steps[i]; step.Phase == v1alpha1.StepPending && !step.Finally {
			step.Phase, step.Reason, step.Message = v1alpha1.StepSkipped, reason, ""
		}
	}
}

// failedStep is the first step of containers, or of finally, whose failure fails the run.
func (d *decision) failedStep(finally bool) *v1alpha1.StepStatus {
	for i := range d.status.Steps {
		step := &d.status.Steps[i]
		if step.Finally == finally && step.Phase == v1alpha1.StepFailed && !step.Tolerated {
			return step
		}
	}
	return nil
}

// start records that the step begins. Its Job is planned when it is found not to be
// there yet.
func (d *decision) start(status *v1alpha1.StepStatus) {
	step := findSpecStep(&d.sj.Spec, status.Name)
	if step == nil { // it is to be made again, and somebody removed it meanwhile
		d.fail(status, v1alpha1.ReasonJobRejected, removedMessage)
		return
	}
	attempt := int32(1)
	if status.Run == d.status.Run {
		attempt = status.Attempt + 1
	}
	reason := ""
	if attempt > 1 {
		reason = status.Reason // why it is made again
	}
	*status = v1alpha1.StepStatus{
		Name:         status.Name,
		Finally:      status.Finally,
		Phase:        v1alpha1.StepStarting,
		Attempt:      attempt,
		Run:          d.status.Run,
		JobName:      jobName(d.sj, d.status.Run, status.Name, attempt),
		Generation:   d.sj.Generation,
		SpecHash:     hashOf(step),
		TemplateHash: hashOf(podTemplate(d.sj, step)),
		Reason:       reason,
	}
	d.begun = status.Name
	if d.status.StartTime == nil {
		d.status.StartTime = d.now.DeepCopy()
	}
}

// deleteStrays deletes Jobs of ours that may be running but that no step accounts for,
// such as one made by a pass whose record was lost before the spec changed. While there
// is one, no step starts.
func (d *decision) deleteStrays() bool {
	found := false
	for _, job := range d.in.Jobs {
		if IsTerminal(job) || d.isFirst(job) {
			continue
		}
		found = true
		d.delete(job)
	}
	return found
}

// isFirst reports whether the Job is the one that the run's next step is about to
// adopt: it was made by a pass that could not record so.
func (d *decision) isFirst(job *batchv1.Job) bool {
	next := d.nextPending()
	if next == nil || next.Run == d.status.Run {
		return false
	}
	return job.Name == jobName(d.sj, d.status.Run, next.Name, 1)
}

func (d *decision) delete(job *batchv1.Job) {
	if job.DeletionTimestamp.IsZero() {
		d.plan.Delete = append(d.plan.Delete, job)
	}
}

// requeueAfter asks for another decision in at most this time.
func (d *decision) requeueAfter(wait time.Duration) {
	wait = max(wait, time.Millisecond)
	if d.plan.RequeueAfter == 0 || wait < d.plan.RequeueAfter {
		d.plan.RequeueAfter = wait
	}
}

// deadlineLeft is the time left to the run, negative once it is over. It plans to look
// again when it will be.
func (d *decision) deadlineLeft() time.Duration {
	seconds := d.sj.Spec.ActiveDeadlineSeconds
	if seconds == nil || d.status.StartTime == nil {
		return 0
	}
	left := d.status.StartTime.Add(time.Duration(*seconds) * time.Second).Sub(d.in.Now)
	if left > 0 {
		d.requeueAfter(left)
		return left
	}
	return -1
}

// expire plans the deletion of a SequentialJob whose time to live is over.
func (d *decision) expire() {
	seconds := d.sj.Spec.TTLSecondsAfterFinished
	if seconds == nil {
		return
	}
	left := d.status.CompletionTime.Add(time.Duration(*seconds) * time.Second).Sub(d.in.Now)
	if left > 0 {
		d.requeueAfter(left)
		return
	}
	d.plan.Expired = true
}

func findStep(steps []v1alpha1.StepStatus, name string) *v1alpha1.StepStatus {
	for i := range steps {
		if steps[i].Name == name {
			return &steps[i]
		}
	}
	return nil
}

// findSpecStep is the step of that name in the spec, nil when it was removed after it
// had started.
func findSpecStep(spec *v1alpha1.SequentialJobSpec, name string) *v1alpha1.Step {
	for _, step := range allSteps(spec) {
		if step.Name == name {
			return step
		}
	}
	return nil
}
