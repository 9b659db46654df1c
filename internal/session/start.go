package session

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// firstRetryDelay is how long to wait before a run is tried again, and twice as long each time
	// after.
	firstRetryDelay = 10 * time.Second
	// The waits between tries at what a quota or a taken name bars: as long again as it has
	// lasted, between these.
	minRetryInterval = time.Second
	maxRetryInterval = time.Minute
)

// accept sees whether the session may run as it asks to.
func (d *evaluation) accept() {
	errs := Validate(d.observation.Session)
	if d.observation.Runner == nil {
		if len(errs) > 0 {
			d.set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "%s", errs.ToAggregate())
			return
		}
		d.set(v1alpha1.ConditionAccepted, metav1.ConditionUnknown, v1alpha1.ReasonRunnerNotFound, "there is no SessionRunner %s", d.spec.Runner)
		return
	}
	reason := v1alpha1.ReasonInvalid
	resolved, refused := resolveSettings(d.observation.Session, d.observation.Runner)
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
func (d *evaluation) pending() {
	if d.spec.OperatingMode == v1alpha1.ModeStopped {
		d.status.StoppedReason, d.status.WaitingSince = v1alpha1.StopUser, nil
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
	d.status.WaitingSince = nil
	if d.backsOff() || !d.alone() {
		return
	}
	d.open()
	d.launch()
}

// obstacle is what the session waits for, and whether that is something missing, which must
// not take longer than its startupTimeout.
func (d *evaluation) obstacle() (*problem, bool) {
	if d.resolved == nil {
		accepted := d.condition(v1alpha1.ConditionAccepted)
		return &problem{accepted.Reason, accepted.Message}, true
	}
	if problem := d.parentProblem(); problem != nil {
		return problem, true
	}
	if other := d.observation.WorkspaceUser; other != "" {
		return &problem{v1alpha1.ReasonWorkspaceInUse, "session " + other + " runs in the workspace"}, false
	}
	return nil, false
}

// parentProblem tells why the session cannot go on in its parent's workspace. Once it has, it
// needs its parent no more: the workspace is also its own.
func (d *evaluation) parentProblem() *problem {
	if d.spec.ContinueFrom == nil || d.status.WorkspaceClaim != "" {
		return nil
	}
	name, parent := d.spec.ContinueFrom.Name, d.observation.Parent
	switch {
	case parent == nil || !parent.DeletionTimestamp.IsZero():
		return &problem{v1alpha1.ReasonParentNotFound, "there is no session " + name}
	case userIDOf(parent) != userIDOf(d.observation.Session):
		return &problem{v1alpha1.ReasonParentOwnedByOtherUser, "session " + name + " is another user's"}
	case parent.Status.Phase != v1alpha1.SessionCompleted && parent.Status.Phase != v1alpha1.SessionFailed:
		return &problem{v1alpha1.ReasonParentNotFinished, "session " + name + " has not ended"}
	case parent.Status.WorkspaceClaim == "":
		return &problem{v1alpha1.ReasonParentHasNoWorkspace, "session " + name + " has no persistent workspace"}
	default:
		return nil
	}
}

func userIDOf(s *v1alpha1.AgenticSession) string {
	if s.Spec.UserContext == nil {
		return ""
	}
	return s.Spec.UserContext.UserID
}

// wait does not wait for ever for what is missing.
func (d *evaluation) wait() {
	if !d.missing {
		d.status.WaitingSince = nil
		return
	}
	if d.status.WaitingSince == nil {
		d.status.WaitingSince = &d.now
	}
	if d.waitedTooLong() {
		d.fail(d.waits.reason, d.waits.message)
	}
}

func (d *evaluation) waitedTooLong() bool {
	limit := secondsOrDefault(d.spec.StartupTimeout, defaultStartupTimeoutSeconds)
	return limit > 0 && d.reached(d.status.WaitingSince.Add(time.Duration(limit)*time.Second))
}

// backsOff waits before a run that failed is tried again.
func (d *evaluation) backsOff() bool {
	last := d.lastRun()
	if last == nil || last.Outcome != v1alpha1.RunRetried || last.End == nil {
		return false
	}
	delay := firstRetryDelay << min(max(d.status.Retries+d.status.Disruptions-1, 0), 4)
	if d.reached(last.End.Add(delay)) {
		return false
	}
	d.waits = &problem{v1alpha1.ReasonRetrying, fmt.Sprintf("the run is tried again %s after its last attempt ended", delay)}
	return true
}

// alone makes sure that no Job of the session runs. Its very first one needs no look: nothing
// was recorded, so nothing was made.
func (d *evaluation) alone() bool {
	first := d.status.Attempt == 0 && len(d.status.Runs) == 0
	if !first && !d.observation.Answers.Listed {
		d.decision.Question = &Question{AllJobs: true}
		return false
	}
	for _, job := range d.observation.Jobs {
		if IsControlledBy(d.observation.Session, job) && isJobActive(job) {
			d.waits = &problem{v1alpha1.ReasonPreviousJobRunning, "Job " + job.Name + " has not ended"}
			return false
		}
	}
	return true
}

// open begins an attempt. From here on its Job may be there.
func (d *evaluation) open() {
	d.status.Attempt++
	d.status.Job = jobName(d.observation.Session.Name, d.status.Run, d.status.Attempt)
	if d.status.WorkspaceClaim != "" {
		return
	}
	switch {
	case d.spec.ContinueFrom != nil:
		d.status.WorkspaceClaim = d.observation.Parent.Status.WorkspaceClaim
		d.status.SDKSessionID = d.observation.Parent.Status.SDKSessionID
	case d.resolved.persistent:
		d.status.WorkspaceClaim = ClaimName(d.observation.Session.Name)
	}
}

// unmade is an attempt whose Job was never seen. It is made, unless that is not wanted any
// more.
func (d *evaluation) unmade() {
	switch {
	case d.spec.OperatingMode == v1alpha1.ModeStopped, d.resolved == nil:
		d.abandon()
	default:
		d.launch()
	}
}

// abandon closes an attempt that never had a Job. There is nothing to record.
func (d *evaluation) abandon() {
	d.status.Job, d.status.StopTime = "", nil
}

// launch plans all that the attempt's Job needs, and the Job.
func (d *evaluation) launch() {
	if d.observation.Refusal != nil {
		d.refused(d.observation.Refusal)
		return
	}
	inputs := d.inputs()
	template := d.template(inputs.Name)
	if old := d.status.Inputs; old != "" && old != inputs.Name {
		d.decision.DeleteSecret = old
	}
	d.status.Inputs = inputs.Name
	if d.spec.Interactive {
		d.status.Service = ServiceName(d.observation.Session.Name)
	}
	d.decision.ApplyObjects = d.children(inputs)
	if d.spec.ContinueFrom != nil {
		d.decision.ShareClaim = d.status.WorkspaceClaim
	}
	d.decision.DryRunPod = d.trial(&template)
	d.decision.CreateJob = d.job(&template)
	if was := d.condition(v1alpha1.ConditionDependenciesReady); was != nil && was.Reason == v1alpha1.ReasonForeignObject {
		d.waits, d.missing = &problem{was.Reason, was.Message}, true // until the try has been made
	}
}

// refused sorts what the API server did not take.
func (d *evaluation) refused(refusal *Refusal) {
	switch refusal.Kind {
	case RefusedInvalid:
		reason := v1alpha1.ReasonChildRefused
		if refusal.Object == "Pod" || refusal.Object == "Job" {
			reason = v1alpha1.ReasonPodRejected
		}
		d.fail(reason, refusal.Message)
	case RefusedQuota: // it waits: quota is given back when something else ends
		d.status.WaitingSince = nil
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
func (d *evaluation) tryAgain(condition string) {
	stood := time.Duration(0)
	if was := d.condition(condition); was != nil && was.Status == metav1.ConditionFalse {
		stood = d.observation.Now.Sub(was.LastTransitionTime.Time)
	}
	d.lookAfter(min(max(stood, minRetryInterval), maxRetryInterval))
}
