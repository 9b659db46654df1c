package agenticsession

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
)

const (
	// Limits of the interval after which a refused object is tried again: see retryInterval.
	minRetryInterval = time.Second
	maxRetryInterval = time.Minute
	// unprotectedRetryInterval is the interval at which a session asks for the admission policies again: no event causes that.
	unprotectedRetryInterval = 10 * time.Second
	// inputsCheckInterval is how long after its Pod got a node, and then how often, the operator checks whether the inputs
	// of a runner that does not start exist, because it has no permission to watch Secrets.
	inputsCheckInterval = 30 * time.Second
	// activityPrecision limits how often lastActivityTime is written.
	activityPrecision = time.Minute
	// activityChecks is how often activity is recorded within inactivityTimeout, within the limit of activityPrecision.
	// After a restart of the operator, only the time since the last record counts again.
	activityChecks = 10
	// stuckPodDelay is how long after its grace period a Pod is reported as stuck.
	stuckPodDelay = 30 * time.Second
)

// next is what to do, given the outcome of the open attempt.
type next struct {
	Decision
	// obstacle that keeps the session from creating a Job, or its Pod from running; nil if nothing does.
	obstacle *obstacle
	// open is what the open attempt left so far.
	open evidence
	// reports are the states of what the runner reports, besides those of the outcome.
	reports []decision.State
	timer   decision.Timer
}

// obstacle keeps a session from creating a Job, or its Pod from running.
type obstacle struct {
	decision.Problem

	// isFatal obstacles fail the run.
	isFatal bool
	// timeLimited obstacles fail the run after startupTimeout.
	timeLimited bool
	// isQueued means that the session waits for its turn.
	isQueued bool
	// retry is when to decide again, because no event shows that the obstacle is gone; 0 if an event does.
	retry time.Duration
}

// missing returns the obstacle of what someone has to create or change within startupTimeout.
func missing(reason, message string) (*obstacle, *Question) {
	return &obstacle{Problem: decision.Problem{Reason: reason, Message: message}, timeLimited: true}, nil
}

// check returns what keeps a session with this status from its next attempt, or a question to answer first; nil for neither.
type check func(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question)

func newNext(f *facts, o *outcome) next {
	n := next{Decision: Decision{Status: *o.status.DeepCopy(), Question: o.question}, obstacle: o.obstacle, timer: decision.Timer{Now: f.Now}}
	attempt := &n.Status.Attempt
	if n.Question == nil && attempt.JobName != "" {
		n.open = o.evidence
		n.follow(f, o)
	}
	if o.delete {
		n.deleteJob(o.job)
	}
	if n.Question == nil && attempt.JobName == "" {
		n.proceed(f)
	}
	for _, job := range f.Jobs {
		// A stale decision may have created active Jobs that do not belong to the open attempt. Ended Jobs whose attempts are no
		// longer recorded would accumulate in a session that is restarted often.
		isRecorded := slices.ContainsFunc(n.Status.Attempts, func(run v1alpha1.SessionAttempt) bool { return run.JobName == job.Name })
		if job.Name != attempt.JobName && metav1.IsControlledBy(job, f.Session) && (decision.FindEndCondition(job) == nil || !isRecorded) {
			n.deleteJob(job)
		}
	}
	if n.Question == nil {
		n.KeepClaim, n.Question = workspaceToKeep(f, &n.Status)
	}
	return n
}

// follow decides about the open attempt.
func (n *next) follow(f *facts, o *outcome) {
	attempt := &n.Status.Attempt
	if o.isMissing {
		isAccepted := !f.spec.Suspend && f.settings != nil
		if isAccepted {
			refused, _ := checkImages(f, &n.Status)
			isAccepted = refused == nil
		}
		if !isAccepted {
			attempt.JobName, attempt.Runner, attempt.StopTime = "", "", nil // an attempt without a Job leaves no record
		} else if n.hasWorkspace(f) && n.passes(f, checkWorkspaceFree) {
			n.createJob(f)
		}
	}
	if o.isMissing || o.isUncertain {
		return
	}
	if attempt.StopTime == nil {
		if reason := n.stopReason(f); reason != "" {
			attempt.StopTime, n.Status.StoppedReason = &f.now, reason
		}
	}
	switch {
	case attempt.StopTime != nil:
		n.deleteJob(o.job)
		n.timer.HasReached(stuckTime(&n.Status))
		return
	case o.hasEnded:
		return
	}
	if deadline := deadlineOf(f, &n.Status, o.job, &n.timer); !ptr.Equal(deadline, o.job.Spec.ActiveDeadlineSeconds) {
		n.SetDeadline = &JobDeadline{o.job, deadline}
	}
	if isGated(o.pod) && o.pod.DeletionTimestamp.IsZero() && !decision.HasPodEnded(o.pod) && n.hasWorkspace(f) {
		n.passes(f, func(f *facts, status *v1alpha1.AgenticSessionStatus) (found *obstacle, question *Question) {
			n.ReserveWorkspace, found, question = reserveWorkspace(f, status, o.pod)
			return found, question
		})
	}
	if n.Question == nil && attempt.JobName != "" && attempt.RunnerStartTime == nil {
		problem := cmp.Or(containerStartProblem(o.pod), podSandboxProblem(o.pod))
		limit := startupTimeoutOf(f.spec)
		if problem != nil && limit != 0 && n.timer.HasReached(startupBegin(&n.Status, o.job, o.pod).Add(limit)) {
			n.fail(f, *problem)
		}
	}
	switch {
	case n.Question != nil:
	case attempt.JobName == "":
		n.deleteJob(o.job)
	default:
		n.restoreObjects(f, o)
	}
}

// stopReason records the activity of the runner of the open attempt, and returns why the session must stop; empty if it need not.
func (n *next) stopReason(f *facts) v1alpha1.StopReason {
	attempt := &n.Status.Attempt
	switch {
	case f.spec.Suspend:
		return v1alpha1.StopUser
	case costProblem(&f.Observation, &n.Status) != nil:
		return v1alpha1.StopBudgetExceeded
	case attempt.RunnerStartTime == nil, !attempt.Limits.ActivityLease: // no activity to measure: see checkActivityFields
		return ""
	}
	// idleSince is since when the runner is idle; zero if it has not renewed its Lease, or the Lease does not exist.
	a, idleSince := f.Activity, time.Time{}
	if a != nil && attempt.LastActivityTime != nil {
		idleSince = attempt.LastActivityTime.Time
	}
	if a != nil && !a.RenewTime.IsZero() && (attempt.LeaseRenewTime == nil || !attempt.LeaseRenewTime.Time.Equal(a.RenewTime)) {
		idleSince = laterTime(laterTime(idleSince, attempt.RunnerStartTime.Time), earlierTime(a.ObservedTime, f.Now))
		if last := attempt.LastActivityTime; last == nil || idleSince.Sub(last.Time) >= activityPrecision {
			attempt.LastActivityTime = new(metav1.NewTime(idleSince.Truncate(time.Second)))
			attempt.LeaseRenewTime = new(metav1.NewMicroTime(a.RenewTime))
		}
	}
	if !idleSince.IsZero() { // without its Lease the runner could report nothing
		idleSince = laterTime(idleSince, a.CreationTime)
	}
	limit := decision.DurationOr(f.spec.Limits.InactivityTimeout, 0)
	if most := decision.DurationOr(attempt.Limits.InactivityTimeout, 0); limit == 0 || most != 0 && most < limit {
		limit = most
	}
	if limit != 0 { // a runner whose activity is not known is not stopped for inactivity
		state := decision.True(v1alpha1.ReasonReporting, "")
		if attempt.LastActivityTime == nil {
			state = decision.State{
				Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonActivityUnknown,
				Message: "the runner has not renewed Lease " + LeaseName(f.Session.Name) +
					" since it started, so inactivityTimeout does not stop it; it must renew it at its start",
			}
		}
		n.reports = append(n.reports, state)
	}
	switch {
	case f.spec.Interactive && f.spec.StopOnRunFinished && f.Activity != nil && f.Activity.FinishedJob == attempt.JobName:
		return v1alpha1.StopRunFinished
	case limit == 0:
	case idleSince.IsZero(): // renewals alone cause no reconciliation
		n.timer.RequeueWithin(min(limit, activityPrecision))
	default:
		n.timer.RequeueWithin(max(limit/activityChecks, activityPrecision))
		if n.timer.HasReached(idleSince.Add(limit)) {
			return v1alpha1.StopInactivity
		}
	}
	return ""
}

// restoreObjects applies the objects of a running attempt that were deleted, and NetworkPolicies that were changed. It cannot build all
// objects: without a SessionRunner not its NetworkPolicy, and while the session exceeds the limits of the SessionRunner no objects that
// depend on its settings.
func (n *next) restoreObjects(f *facts, o *outcome) {
	attempt, b := &n.Status.Attempt, newObjectBuilder(f, &n.Status)
	b.job = o.job
	objects := []decision.Object{NewDefaultDenyPolicy(f.Session.Namespace)}
	switch {
	case f.settings != nil:
		objects = b.newChildObjects(b.newInputsSecret())
	case f.Runner != nil:
		objects = append(objects, newSessionNetworkPolicy(f.Session, f.Runner, o.job, &f.Network, &f.NetworkCheck))
		fallthrough
	default:
		objects = append(objects, b.newLeaseObjects()...)
	}
	for _, object := range objects {
		name, isCurrent := object.GetName(), false // or the object is no longer needed
		switch object := object.(type) {
		case *networkingv1.NetworkPolicy: // the only object whose content is compared
			isCurrent = IsNetworkPolicyCurrent(findNetworkPolicy(f.NetworkPolicies, name), object)
		case *corev1.PersistentVolumeClaim: // read while the Pod waits for it
			claim, answered := f.Answers.Claims[name]
			isCurrent = claim != nil || !answered
		case *corev1.Secret: // needed until the runner has started. If the spec was changed since the attempt began, it cannot be built again.
			isScheduled := findPodCondition(o.pod, corev1.PodScheduled, corev1.ConditionTrue) != nil
			isCurrent = attempt.RunnerStartTime != nil || name != attempt.InputsRef.Name || !isScheduled ||
				!n.timer.HasReached(startupBegin(&n.Status, o.job, o.pod).Add(inputsCheckInterval))
			if !isCurrent {
				var answered bool
				if isCurrent, answered = f.Answers.Secrets[name]; !answered {
					n.Question = &Question{Secret: name}
					return
				}
				n.timer.RequeueWithin(inputsCheckInterval)
			}
		default:
			isCurrent = f.Children[ChildKey{object.GetObjectKind().GroupVersionKind().Kind, name}]
		}
		if !isCurrent {
			n.ApplyObjects = append(n.ApplyObjects, object)
		}
	}
	if len(n.ApplyObjects) == 0 {
		return
	}
	// A refusal is reported until the object is restored.
	refused := f.blockedBy(v1alpha1.ReasonNameTaken, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonChildRefused)
	if found, _ := checkRefusal(f, &n.Status); found != nil {
		refused = &found.Problem
	}
	if refused != nil {
		n.obstacle = cmp.Or(n.obstacle, &obstacle{Problem: *refused, timeLimited: true})
		n.timer.RequeueWithin(f.retryInterval())
	}
}

// proceed decides about a session without an open attempt. If an attempt is due, it opens the attempt, or records the first obstacle.
func (n *next) proceed(f *facts) {
	status, ttl := &n.Status, f.spec.TTLSecondsAfterFinished
	last := lastRun(status)
	isStopped := last != nil && last.Outcome == v1alpha1.RunStopped
	switch {
	case isStopped && f.spec.Suspend:
		status.StoppedReason, status.WaitingSince = v1alpha1.StopUser, nil
		return
	case last == nil || last.Outcome == v1alpha1.RunRetried:
	case IsRerunRequested(f.Session, status):
		status.Run++
		status.RerunID = f.spec.Rerun.ID
		status.Retries, status.Disruptions = 0, 0
		status.CompletionTime, status.WaitingSince = nil, nil
	case isStopped && isStoppedByUser(status):
	case !isStopped && ttl != nil && status.CompletionTime != nil:
		n.DeleteSession = n.timer.HasReached(status.CompletionTime.Add(time.Duration(*ttl) * time.Second))
		return
	default:
		return
	}
	if f.spec.Suspend {
		status.StoppedReason, status.WaitingSince = v1alpha1.StopUser, nil
		return
	}
	status.StoppedReason = ""
	if n.passes(f, checkBudget, checkProtection) && (f.settings == nil || n.hasWorkspace(f)) && n.passes(f,
		checkAcceptance, checkParent, checkNetworkWidened, checkEgressProxy, checkWorkspaceUser, checkImages, checkAddresses,
		checkRetryDelay, checkPlace, checkPreviousJob, checkWorkspaceFree,
	) {
		openAttempt(f, status)
		n.createJob(f)
	}
}

// passes reports whether all checks find nothing. Otherwise it records the first question, or the first obstacle: the session waits until
// the obstacle is gone, and its run fails if the obstacle is fatal, or has a time limit and lasts too long.
func (n *next) passes(f *facts, checks ...check) bool {
	var found *obstacle
	var question *Question
	for _, check := range checks {
		if found, question = check(f, &n.Status); found != nil || question != nil {
			break
		}
	}
	switch {
	case question != nil:
		n.Question = question
		return false
	case found == nil:
		return true
	case found.isFatal:
		n.fail(f, found.Problem)
		return false
	}
	n.obstacle = found
	if found.isQueued {
		n.Status.QueuedSince = f.queuedSince()
	}
	if !found.timeLimited {
		n.Status.WaitingSince = nil
	} else {
		n.Status.WaitingSince = cmp.Or(n.Status.WaitingSince, &f.now)
		if limit := startupTimeoutOf(f.spec); limit > 0 && n.timer.HasReached(n.Status.WaitingSince.Add(limit)) {
			n.fail(f, found.Problem)
			return false
		}
	}
	if found.retry != 0 {
		n.timer.RequeueWithin(found.retry)
	}
	return false
}

// fail fails the run now, with or without an open attempt.
func (n *next) fail(f *facts, problem decision.Problem) {
	status, reports := closeAttempt(f, &n.Status, n.open, verdict{outcome: v1alpha1.RunFailed, Problem: problem, endTime: f.now.Time})
	n.Status, n.reports, n.open = status, append(n.reports, reports...), evidence{}
}

// hasWorkspace reports whether the attempt can use its workspace. It records what is known about the workspace.
func (n *next) hasWorkspace(f *facts) bool {
	w := resolveWorkspace(f, &n.Status)
	n.Status.Workspace, n.Status.Result, n.ShareClaim = w.status, cmp.Or(w.result, n.Status.Result), cmp.Or(w.share, n.ShareClaim)
	if waits := w.obstacle; waits != nil && waits.Reason == v1alpha1.ReasonWorkspaceLost && !waits.isFatal {
		// The deleted claim exists as long as a Pod that uses it, even if the Pod has ended.
		for _, job := range f.Jobs {
			if decision.FindEndCondition(job) != nil {
				n.deleteJob(job)
			}
		}
	}
	return n.passes(f, func(*facts, *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) { return w.obstacle, w.question })
}

func (n *next) deleteJob(job *batchv1.Job) {
	isPlanned := slices.ContainsFunc(n.DeleteJobs, func(other *batchv1.Job) bool { return other.UID == job.UID })
	if job.DeletionTimestamp.IsZero() && !isPlanned {
		n.DeleteJobs = append(n.DeleteJobs, job)
	}
}

// openAttempt opens an attempt. From here on, its Job may exist.
func openAttempt(f *facts, status *v1alpha1.AgenticSessionStatus) {
	status.WaitingSince = nil
	number, inputs := AttemptNumber(status)+1, status.Attempt.InputsRef
	if count := len(status.Attempts); count > 0 {
		inputs = cmp.Or(inputs, status.Attempts[count-1].InputsRef)
	}
	status.Attempt = v1alpha1.SessionAttempt{
		JobAttempt: v1alpha1.JobAttempt{
			AttemptNumber: v1alpha1.AttemptNumber{Run: status.Run, Attempt: number}, JobName: jobName(f.Session.Name, status.Run, number),
		},
		Runner: f.spec.Runner, InputsRef: inputs,
	}
	if status.Workspace.ClaimRef.Name == "" && f.settings.persistent {
		status.Workspace.ClaimRef.Name = ClaimName(f.Session.Name)
	}
}

// createJob creates the Job of the open attempt, and the objects that it needs.
func (n *next) createJob(f *facts) {
	if !n.passes(f, checkRefusal) {
		return
	}
	// The attempt keeps these settings of its SessionRunner.
	attempt, runner := &n.Status.Attempt, &f.settings.runner.Spec
	attempt.EgressTokenExpires = egressTokenExpires(f, &n.Status)
	attempt.Limits = v1alpha1.SessionAttemptLimits{ActivityLease: runner.ActivityLease}
	if most := runner.Limits.Timeout; most != nil {
		attempt.Limits.Timeout = new(*most)
	}
	if most := runner.Limits.MaxCostUSD; most != nil {
		attempt.Limits.MaxCostUSD = new(*most)
	}
	if most := runner.Limits.InactivityTimeout; most != nil {
		attempt.Limits.InactivityTimeout = new(*most)
	}
	attempt.LastActivityTime = nil
	if f.Activity != nil && !f.Activity.RenewTime.IsZero() { // of an earlier attempt
		attempt.LeaseRenewTime = new(metav1.NewMicroTime(f.Activity.RenewTime))
	}
	b := newObjectBuilder(f, &n.Status)
	inputs := b.newInputsSecret()
	template := b.newPodTemplate(inputs.Name)
	if old := attempt.InputsRef.Name; old != "" && old != inputs.Name {
		n.DeleteSecret = old
	}
	attempt.InputsRef.Name = inputs.Name
	n.ApplyObjects = b.newChildObjects(inputs)
	n.DryRunPod = b.newDryRunPod(&template)
	n.CreateJob = b.newJob(&template)
	if left, limited := remainingSeconds(&f.Observation, &n.Status); limited {
		n.CreateJob.Spec.ActiveDeadlineSeconds = new(left + int64(startupAllowance/time.Second))
	}
	// A refusal stays reported until the API server has accepted the refused object.
	if refused := f.blockedBy(v1alpha1.ReasonNameTaken, v1alpha1.ReasonWorkspaceNotFound, v1alpha1.ReasonServiceAccountNotFound, v1alpha1.ReasonQuotaExceeded); refused != nil {
		n.obstacle = &obstacle{Problem: *refused, timeLimited: true}
	}
}

// checkRefusal returns the obstacle of an object of the attempt that the API server refused.
func checkRefusal(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if f.Refusal == nil {
		return nil, nil
	}
	o := &obstacle{Problem: decision.Problem{Message: f.Refusal.Message}, timeLimited: true, retry: f.retryInterval()}
	switch f.Refusal.Class {
	case decision.QuotaExceeded: // a quota has room again when other objects end
		o.Reason, o.timeLimited = v1alpha1.ReasonQuotaExceeded, false
	case decision.AlreadyExists:
		o.Reason = v1alpha1.ReasonNameTaken
	case decision.ServiceAccountMissing:
		o.Reason = v1alpha1.ReasonServiceAccountNotFound
	default:
		o.Reason, o.isFatal = v1alpha1.ReasonChildRefused, true
		if f.Refusal.Kind == "Pod" || f.Refusal.Kind == "Job" {
			o.Reason = v1alpha1.ReasonPodRejected
		}
	}
	return o, nil
}

// FirstPod returns the Pod of the first attempt of a new session, as far as it is known without the session's children: with another
// ServiceAccount, and without the check of the network. It returns nil if the SessionRunner does not accept the session.
func FirstPod(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) *corev1.Pod {
	f := newFacts(Observation{Session: s, Runner: runner})
	if f.settings == nil {
		return nil
	}
	status := newOutcome(f).status
	openAttempt(f, &status)
	b := newObjectBuilder(f, &status)
	template := b.newPodTemplate("inputs")
	pod := b.newDryRunPod(&template)
	if f.settings.template.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	return pod
}

// checkBudget returns why no attempt may start; nil if time and budget are left.
func checkBudget(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	problem := costProblem(&f.Observation, status)
	if left, limited := remainingSeconds(&f.Observation, status); limited && left == 0 {
		problem = &problemTimeUsedUp
	}
	if problem == nil {
		return nil, nil
	}
	return &obstacle{Problem: *problem, isFatal: true}, nil
}

// checkProtection has no time limit: only an administrator can change the admission policies.
func checkProtection(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if f.Unprotected == "" {
		return nil, nil
	}
	return &obstacle{Problem: decision.Problem{Reason: v1alpha1.ReasonUnprotected, Message: f.Unprotected}, retry: unprotectedRetryInterval}, nil
}

func checkAcceptance(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if f.accepted.Status == metav1.ConditionTrue {
		return nil, nil
	}
	return missing(f.accepted.Reason, decision.TruncateMessage(f.accepted.Message, maxConditionMessageBytes))
}

// checkParent returns why the session cannot continue in its parent's workspace. After it became an owner of the
// workspace, the parent need not exist, but if it does, the first attempt waits until the parent has finished.
func checkParent(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	parent := f.Parent
	if f.spec.ContinueFrom == nil || hasAttempted(status) && status.Workspace.ClaimRef.Name != "" ||
		status.Workspace.UID != "" && !isParentOf(f, &status.Workspace) {
		return nil, nil
	}
	name := "AgenticSession " + f.spec.ContinueFrom.Name + " of continueFrom"
	switch {
	case parent == nil || !parent.DeletionTimestamp.IsZero():
		return missing(v1alpha1.ReasonParentNotFound, name+" does not exist")
	case UserOf(parent) != UserOf(f.Session):
		return missing(v1alpha1.ReasonParentOwnedByOtherUser, name+" belongs to another user")
	case !isSessionFinished(parent):
		return missing(v1alpha1.ReasonParentNotFinished, name+" has not completed or failed yet")
	case parent.Status.Workspace.ClaimRef.Name == "":
		return missing(v1alpha1.ReasonParentHasNoWorkspace, name+" has no persistent workspace")
	}
	return nil, nil
}

// checkNetworkWidened finds a NetworkPolicy that allows the session more than its SessionRunner does, unless the
// SessionRunner only prefers isolation.
func checkNetworkWidened(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if f.Runner.Spec.Network.Isolation == v1alpha1.NetworkIsolationPreferred {
		return nil, nil
	}
	own := newSessionNetworkPolicy(f.Session, f.Runner, nil, &f.Network, &f.NetworkCheck)
	widening := findWideningPolicy(f.NetworkPolicies, podLabels(f.Session, f.Runner), own)
	if widening == nil {
		return nil, nil
	}
	return missing(v1alpha1.ReasonNetworkWidened, wideningMessage(widening, f.Runner.Name))
}

// checkEgressProxy returns why the egress proxy does not serve the hosts of the SessionRunner yet.
func checkEgressProxy(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if !sessionrunner.UsesProxy(f.Runner) {
		return nil, nil
	}
	ready := meta.FindStatusCondition(f.Runner.Status.Conditions, v1alpha1.ConditionEgressProxyReady)
	message, name := "", "the egress proxy for the hosts of SessionRunner "+f.Runner.Name
	switch {
	case ready == nil || ready.ObservedGeneration != f.Runner.Generation:
		message = name + " does not run yet; the operator's controller egressproxy starts it"
	case ready.Status != metav1.ConditionTrue || f.Runner.Status.EgressProxyAddress == "":
		message = name + " is not ready: " + ready.Message
	case f.Keys == nil:
		message = "the operator has no key to sign the session's token for the egress proxy; its log says why"
	default:
		return nil, nil
	}
	return missing(v1alpha1.ReasonEgressProxyNotReady, message)
}

// checkWorkspaceUser has no time limit: the other session does not depend on this session.
func checkWorkspaceUser(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if f.WorkspaceUser == "" {
		return nil, nil
	}
	return &obstacle{Problem: decision.Problem{Reason: v1alpha1.ReasonWorkspaceInUse, Message: "AgenticSession " + f.WorkspaceUser + " runs in the workspace"}}, nil
}

// checkImages returns whether a Policy does not allow an image of an accepted session's Pod. The operator's own image, of the network
// check, needs no permission.
func checkImages(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	sidecars, _ := newObjectBuilder(f, status).newSidecars("", 0)
	pod := &corev1.PodSpec{Containers: []corev1.Container{{Name: v1alpha1.RunnerContainer, Image: f.settings.image}}, InitContainers: sidecars}
	if err := policy.CheckImages(pod, &f.Policies); err != nil {
		return missing(v1alpha1.ReasonImageNotAllowed, err.Error())
	}
	return nil, nil
}

// checkAddresses returns whether the operator's addresses, which the network check needs, are not known.
func checkAddresses(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if !f.NetworkCheck.appliesTo(f.Runner) || len(f.NetworkCheck.Addresses) > 0 || f.Runner.Spec.Network.Isolation == v1alpha1.NetworkIsolationPreferred {
		return nil, nil
	}
	return &obstacle{timeLimited: true, retry: addressInterval, Problem: decision.Problem{
		Reason:  v1alpha1.ReasonNetworkEnforcementUnknown,
		Message: "the address of the operator's Service for network checks cannot be resolved, so it is not known whether NetworkPolicies are enforced",
	}}, nil
}

func checkRetryDelay(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	last, retry := lastRun(status), f.spec.Retry
	if last == nil || last.Outcome != v1alpha1.RunRetried || last.CompletionTime == nil {
		return nil, nil
	}
	if retry == nil { // it was removed after the attempt ended
		retry = &v1alpha1.SessionRetry{}
	}
	delay := decision.RetryBackoff(&retry.Retry, max(status.Retries+status.Disruptions-1, 0))
	left := last.CompletionTime.Add(delay).Sub(f.Now)
	if left <= 0 {
		return nil, nil
	}
	return &obstacle{retry: left, Problem: decision.Problem{
		Reason: v1alpha1.ReasonRetrying, Message: fmt.Sprintf("the run is retried %s after its last attempt ended", delay),
	}}, nil
}

// checkPreviousJob returns whether a Job of the session runs. Before its first attempt the session cannot have a Job.
func checkPreviousJob(f *facts, status *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	isFirst := status.Attempt.Attempt == 0 && len(status.Attempts) == 0
	if !isFirst && !f.Answers.Listed {
		return nil, &Question{AllJobs: true}
	}
	i := slices.IndexFunc(f.Jobs, func(job *batchv1.Job) bool {
		return metav1.IsControlledBy(job, f.Session) && decision.FindEndCondition(job) == nil
	})
	if i < 0 {
		return nil, nil
	}
	return &obstacle{Problem: decision.Problem{Reason: v1alpha1.ReasonPreviousJobRunning, Message: "Job " + f.Jobs[i].Name + " has not ended yet"}}, nil
}

// startupBegin returns since when the runner could have started. Time in which the Pod waits for a node does not count,
// because it is not the session's fault.
func startupBegin(status *v1alpha1.AgenticSessionStatus, job *batchv1.Job, pod *corev1.Pod) time.Time {
	if c := findPodCondition(pod, corev1.PodScheduled, corev1.ConditionTrue); c != nil && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return cmp.Or(status.Attempt.StartTime, &job.CreationTimestamp).Time
}

// stuckTime returns when the Pod of a stopping session is reported as stuck.
func stuckTime(status *v1alpha1.AgenticSessionStatus) time.Time {
	return status.Attempt.StopTime.Add(gracePeriod + stuckPodDelay)
}
