package session

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// firstDelay is how long to wait before a run is tried again, and twice as long each time
	// after.
	firstDelay = 10 * time.Second
	// The waits between tries at what a quota or a taken name bars: as long again as it has
	// lasted, between these.
	minTry = time.Second
	maxTry = time.Minute
)

// accept sees whether the session may run as it asks to.
func (d *decision) accept() {
	errs := Validate(d.in.Session)
	if d.in.Runner == nil {
		if len(errs) > 0 {
			d.set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "%s", errs.ToAggregate())
			return
		}
		d.set(v1alpha1.ConditionAccepted, metav1.ConditionUnknown, v1alpha1.ReasonRunnerNotFound, "there is no SessionRunner %s", d.spec.Runner)
		return
	}
	reason := v1alpha1.ReasonInvalid
	resolved, refused := resolve(d.in.Session, d.in.Runner)
	if len(errs) == 0 {
		reason = v1alpha1.ReasonNotAllowed
	}
	if errs = append(errs, refused...); len(errs) > 0 {
		d.set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, "%s", errs.ToAggregate())
		return
	}
	d.resolved = resolved
	d.set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
}

// pending begins an attempt, if nothing is in its way.
func (d *decision) pending() {
	if d.spec.OperatingMode == v1alpha1.ModeStopped {
		d.status.StoppedReason, d.status.WaitingTime = v1alpha1.StopUser, nil
		return
	}
	d.status.StoppedReason = ""
	if left, limited := d.left(); limited && left == 0 {
		d.fail(v1alpha1.ReasonDeadlineExceeded, "all of the session's time is used up")
		return
	}
	if d.waits, d.missing = d.obstacle(); d.waits != nil {
		d.wait()
		return
	}
	d.status.WaitingTime = nil
	if d.backsOff() || !d.alone() {
		return
	}
	d.open()
	d.launch()
}

// obstacle is what the session waits for, and whether that is something missing, which must
// not take longer than its startupTimeout.
func (d *decision) obstacle() (*problem, bool) {
	if d.resolved == nil {
		accepted := d.condition(v1alpha1.ConditionAccepted)
		return &problem{accepted.Reason, accepted.Message}, true
	}
	if problem := d.parentProblem(); problem != nil {
		return problem, true
	}
	if other := d.in.WorkspaceUser; other != "" {
		return &problem{v1alpha1.ReasonWorkspaceInUse, "session " + other + " runs in the workspace"}, false
	}
	return nil, false
}

// parentProblem tells why the session cannot go on in its parent's workspace. Once it has, it
// needs its parent no more: the workspace is also its own.
func (d *decision) parentProblem() *problem {
	if d.spec.ContinueFrom == nil || d.status.WorkspaceClaim != "" {
		return nil
	}
	name, parent := d.spec.ContinueFrom.Name, d.in.Parent
	switch {
	case parent == nil || !parent.DeletionTimestamp.IsZero():
		return &problem{v1alpha1.ReasonParentNotFound, "there is no session " + name}
	case userOf(parent) != userOf(d.in.Session):
		return &problem{v1alpha1.ReasonParentOfOtherUser, "session " + name + " is another user's"}
	case parent.Status.Phase != v1alpha1.SessionCompleted && parent.Status.Phase != v1alpha1.SessionFailed:
		return &problem{v1alpha1.ReasonParentNotFinished, "session " + name + " has not ended"}
	case parent.Status.WorkspaceClaim == "":
		return &problem{v1alpha1.ReasonParentNoWorkspace, "session " + name + " has no persistent workspace"}
	default:
		return nil
	}
}

func userOf(s *v1alpha1.AgenticSession) string {
	if s.Spec.UserContext == nil {
		return ""
	}
	return s.Spec.UserContext.UserID
}

// wait does not wait for ever for what is missing.
func (d *decision) wait() {
	if !d.missing {
		d.status.WaitingTime = nil
		return
	}
	if d.status.WaitingTime == nil {
		d.status.WaitingTime = &d.now
	}
	if d.waitedTooLong() {
		d.fail(d.waits.reason, d.waits.message)
	}
}

func (d *decision) waitedTooLong() bool {
	limit := secondsOf(d.spec.StartupTimeout, defaultStartupTimeout)
	return limit > 0 && d.reached(d.status.WaitingTime.Add(time.Duration(limit)*time.Second))
}

// backsOff waits before a run that failed is tried again.
func (d *decision) backsOff() bool {
	last := d.lastRun()
	if last == nil || last.Outcome != v1alpha1.RunRetried || last.End == nil {
		return false
	}
	delay := firstDelay << min(max(d.status.Retries+d.status.Disruptions-1, 0), 4)
	if d.reached(last.End.Add(delay)) {
		return false
	}
	d.waits = &problem{v1alpha1.ReasonRetrying, fmt.Sprintf("the run is tried again %s after its last attempt ended", delay)}
	return true
}

// alone makes sure that no Job of the session runs. Its very first one needs no look: nothing
// was recorded, so nothing was made.
func (d *decision) alone() bool {
	first := d.status.Attempt == 0 && len(d.status.Runs) == 0
	if !first && !d.in.Answers.Listed {
		d.plan.Ask = &Question{AllJobs: true}
		return false
	}
	for _, job := range d.in.Jobs {
		if IsOwned(d.in.Session, job) && alive(job) {
			d.waits = &problem{v1alpha1.ReasonPreviousJobLives, "Job " + job.Name + " has not ended"}
			return false
		}
	}
	return true
}

// open begins an attempt. From here on its Job may be there.
func (d *decision) open() {
	d.status.Attempt++
	d.status.Job = jobName(d.in.Session.Name, d.status.Run, d.status.Attempt)
	if d.status.WorkspaceClaim != "" {
		return
	}
	switch {
	case d.spec.ContinueFrom != nil:
		d.status.WorkspaceClaim = d.in.Parent.Status.WorkspaceClaim
		d.status.SDKSessionID = d.in.Parent.Status.SDKSessionID
	case d.resolved.persistent:
		d.status.WorkspaceClaim = ClaimName(d.in.Session.Name)
	}
}

// unmade is an attempt whose Job was never seen. It is made, unless that is not wanted any
// more.
func (d *decision) unmade() {
	switch {
	case d.spec.OperatingMode == v1alpha1.ModeStopped, d.resolved == nil:
		d.abandon()
	default:
		d.launch()
	}
}

// abandon closes an attempt that never had a Job. There is nothing to record.
func (d *decision) abandon() {
	d.status.Job, d.status.StopTime = "", nil
}

// launch plans all that the attempt's Job needs, and the Job.
func (d *decision) launch() {
	if d.in.Refusal != nil {
		d.refused(d.in.Refusal)
		return
	}
	inputs := d.inputs()
	template := d.template(inputs.Name)
	if old := d.status.Inputs; old != "" && old != inputs.Name {
		d.plan.DeleteSecret = old
	}
	d.status.Inputs = inputs.Name
	if d.spec.Interactive {
		d.status.Service = ServiceName(d.in.Session.Name)
	}
	d.plan.Apply = d.children(inputs)
	if d.spec.ContinueFrom != nil {
		d.plan.Join = d.status.WorkspaceClaim
	}
	d.plan.DryRun = d.trial(&template)
	d.plan.Create = d.job(&template)
	if was := d.condition(v1alpha1.ConditionDependenciesReady); was != nil && was.Reason == v1alpha1.ReasonForeignObject {
		d.waits, d.missing = &problem{was.Reason, was.Message}, true // until the try has been made
	}
}

// refused sorts what the API server did not take.
func (d *decision) refused(refusal *Refusal) {
	switch refusal.Kind {
	case RefusedInvalid:
		reason := v1alpha1.ReasonChildRefused
		if refusal.Object == "Pod" || refusal.Object == "Job" {
			reason = v1alpha1.ReasonPodRejected
		}
		d.fail(reason, refusal.Message)
	case RefusedQuota: // it waits: quota is given back when something else ends
		d.status.WaitingTime = nil
		d.waits, d.missing = &problem{v1alpha1.ReasonQuotaExceeded, refusal.Message}, false
		d.tryAgain(v1alpha1.ConditionJobCreated)
	case RefusedForeign:
		d.waits, d.missing = &problem{v1alpha1.ReasonForeignObject, refusal.Message}, true
		d.wait()
		if d.status.Job != "" {
			d.tryAgain(v1alpha1.ConditionDependenciesReady)
		}
	}
}

// tryAgain looks again after as long as a condition has stood.
func (d *decision) tryAgain(condition string) {
	stood := time.Duration(0)
	if was := d.condition(condition); was != nil && was.Status == metav1.ConditionFalse {
		stood = d.in.Now.Sub(was.LastTransitionTime.Time)
	}
	d.lookAfter(min(max(stood, minTry), maxTry))
}
