package agenticsession

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

const (
	// Limits of the interval after which a refused object is tried again: see retryInterval.
	minRetryInterval = time.Second
	maxRetryInterval = time.Minute
	// unprotectedRetryInterval is the interval at which a session asks for the admission policies again: no event causes that.
	unprotectedRetryInterval = 10 * time.Second
)

// obstacle keeps a session from creating a Job.
type obstacle struct {
	decision.Problem

	// timeLimited obstacles fail the run after startupTimeout.
	timeLimited bool
}

func (e *evaluation) startAttempt() *Question {
	if e.spec.Suspend {
		e.status.StoppedReason, e.status.WaitingSince = v1alpha1.StopUser, nil
		return nil
	}
	e.status.StoppedReason = ""
	if problem := budgetProblem(&e.observation, &e.status); problem != nil {
		e.failRun(*problem)
		return nil
	}
	if unprotected := e.observation.Unprotected; unprotected != "" { // without a time limit: only an administrator can change it
		e.waitFor(v1alpha1.ReasonUnprotected, unprotected, false)
		e.timer.RequeueWithin(unprotectedRetryInterval)
		return nil
	}
	if e.settings != nil {
		if state := e.resolveWorkspace(); !state.usable {
			return state.question
		}
	}
	if e.waitForDependencies() {
		return nil
	}
	if delay, end := retryDelay(e.spec.Retry, &e.status); !e.timer.HasReached(end) {
		e.waitFor(v1alpha1.ReasonRetrying, fmt.Sprintf("the run is retried %s after its last attempt ended", delay), false)
		return nil
	}
	if isWaiting, question := e.waitForPlace(); isWaiting || question != nil {
		return question
	}
	// Before its first attempt the session cannot have a Job.
	isFirst := e.status.Attempt.Attempt == 0 && len(e.status.Attempts) == 0
	if !isFirst && !e.observation.Answers.Listed {
		return &Question{AllJobs: true}
	}
	isRunning := func(job *batchv1.Job) bool {
		return metav1.IsControlledBy(job, e.observation.Session) && isJobActive(job)
	}
	if i := slices.IndexFunc(e.observation.Jobs, isRunning); i >= 0 {
		e.waitFor(v1alpha1.ReasonPreviousJobRunning, "Job "+e.observation.Jobs[i].Name+" has not ended yet", false)
		return nil
	}
	if state := e.checkWorkspaceFree(); !state.usable {
		return state.question
	}
	e.openAttempt()
	e.createAttemptObjects()
	return nil
}

// budgetProblem returns why no attempt may start; nil if time and budget are left.
func budgetProblem(o *Observation, status *v1alpha1.AgenticSessionStatus) *decision.Problem {
	if left, limited := remainingSeconds(o, status); limited && left == 0 {
		return &problemTimeUsedUp
	}
	return costProblem(o, status)
}

// waitForDependencies reports whether the session has to wait for changes of other objects. It reports the first
// obstacle.
func (e *evaluation) waitForDependencies() bool {
	o, status := &e.observation, &e.status
	if accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSpecAccepted); accepted.Status != metav1.ConditionTrue {
		e.waitFor(accepted.Reason, accepted.Message, true)
		return true
	}
	checks := []func(*Observation, *v1alpha1.AgenticSessionStatus) (string, string, bool){isParentUnusable, isNetworkWidened, isEgressProxyNotReady}
	for _, check := range checks {
		if reason, message, found := check(o, status); found {
			e.waitFor(reason, message, true)
			return true
		}
	}
	if o.WorkspaceUser != "" { // without a time limit: the other session does not depend on this session
		e.waitFor(v1alpha1.ReasonWorkspaceInUse, "AgenticSession "+o.WorkspaceUser+" runs in the workspace", false)
		return true
	}
	if err := e.checkImages(); err != nil {
		e.waitFor(v1alpha1.ReasonImageNotAllowed, err.Error(), true)
		return true
	}
	return e.waitForAddresses()
}

// checkImages returns an error if a Policy does not allow an image of an accepted session's Pod.
func (e *evaluation) checkImages() error {
	b := e.newObjectBuilder()
	b.check = nil // the operator's own image needs no permission
	template := b.newPodTemplate("")
	return policy.CheckImages(&template.Spec, &e.observation.Policies)
}

func (e *evaluation) newObjectBuilder() *objectBuilder {
	b := &objectBuilder{session: e.observation.Session, settings: e.settings, status: &e.status, network: &e.observation.Network, check: &e.observation.NetworkCheck, keys: e.observation.Keys}
	if limit := findCostLimit(&e.observation, &e.status); limit != nil {
		b.budget = new(max(limit.micros-microsOf(e.status.TotalCostUSD), 0))
	}
	return b
}

// isParentUnusable reports why the session cannot continue in its parent's workspace. After it became an owner of the
// workspace, the parent need not exist, but if it does, the first attempt waits until the parent has finished.
func isParentUnusable(o *Observation, status *v1alpha1.AgenticSessionStatus) (reason, message string, found bool) {
	parent, isOwner := o.Parent, status.Workspace.UID != ""
	if o.Session.Spec.ContinueFrom == nil || hasAttempted(status) && status.Workspace.ClaimRef.Name != "" {
		return "", "", false
	}
	name := "AgenticSession " + o.Session.Spec.ContinueFrom.Name + " of continueFrom"
	switch {
	case isOwner && !isParentOf(o, status):
		return "", "", false
	case parent == nil || !parent.DeletionTimestamp.IsZero():
		return v1alpha1.ReasonParentNotFound, name + " does not exist", true
	case userIDOf(parent) != userIDOf(o.Session):
		return v1alpha1.ReasonParentOwnedByOtherUser, name + " belongs to another user", true
	case !isSessionFinished(parent):
		return v1alpha1.ReasonParentNotFinished, name + " has not completed or failed yet", true
	case parent.Status.Workspace.ClaimRef.Name == "":
		return v1alpha1.ReasonParentHasNoWorkspace, name + " has no persistent workspace", true
	}
	return "", "", false
}

// isNetworkWidened reports a NetworkPolicy that allows the session more than its SessionRunner does, unless the
// SessionRunner only prefers isolation.
func isNetworkWidened(o *Observation, _ *v1alpha1.AgenticSessionStatus) (reason, message string, found bool) {
	if o.Runner.Spec.Network.Isolation == v1alpha1.NetworkIsolationPreferred {
		return "", "", false
	}
	widening := findWideningPolicy(o.NetworkPolicies, podLabels(o.Session, o.Runner), newSessionNetworkPolicy(o.Session, o.Runner, &o.Network, &o.NetworkCheck))
	if widening == nil {
		return "", "", false
	}
	return v1alpha1.ReasonNetworkWidened, wideningMessage(widening, o.Runner.Name), true
}

// retryDelay returns the delay between the last attempt of a run and its retry, and when the delay ends; zero if the
// run is not retried.
func retryDelay(retry *v1alpha1.SessionRetry, status *v1alpha1.AgenticSessionStatus) (delay time.Duration, end time.Time) {
	last := lastRun(status)
	if last == nil || last.Outcome != v1alpha1.RunRetried || last.CompletionTime == nil {
		return 0, time.Time{}
	}
	if retry == nil { // it was removed after the attempt ended
		retry = &v1alpha1.SessionRetry{}
	}
	delay = decision.RetryBackoff(&retry.Retry, max(status.Retries+status.Disruptions-1, 0))
	return delay, last.CompletionTime.Add(delay)
}

// UserOf returns the user that a session belongs to; empty if not known.
func UserOf(s *v1alpha1.AgenticSession) string { return userIDOf(s) }

func userIDOf(s *v1alpha1.AgenticSession) string {
	return ptr.Deref(s.Spec.UserContext, v1alpha1.UserContext{}).UserID
}

// waitFor reports an obstacle, and fails the run if an obstacle with a time limit lasts too long.
func (e *evaluation) waitFor(reason, message string, timeLimited bool) {
	e.obstacle = &obstacle{decision.Problem{Reason: reason, Message: message}, timeLimited}
	if !timeLimited {
		e.status.WaitingSince = nil
		return
	}
	if e.status.WaitingSince == nil {
		e.status.WaitingSince = &e.now
	}
	limit := startupTimeoutOf(e.spec)
	if limit > 0 && e.timer.HasReached(e.status.WaitingSince.Add(limit)) {
		e.failRun(e.obstacle.Problem)
	}
}

// openAttempt opens an attempt. From here on, its Job may exist.
func (e *evaluation) openAttempt() {
	e.status.WaitingSince = nil
	number, inputs := AttemptNumber(&e.status)+1, e.status.Attempt.InputsRef
	if count := len(e.status.Attempts); count > 0 {
		inputs = cmp.Or(inputs, e.status.Attempts[count-1].InputsRef)
	}
	e.status.Attempt = v1alpha1.SessionAttempt{
		JobAttempt: v1alpha1.JobAttempt{
			AttemptNumber: v1alpha1.AttemptNumber{Run: e.status.Run, Attempt: number},
			JobName:       jobName(e.observation.Session.Name, e.status.Run, number),
		},
		Runner: e.spec.Runner, InputsRef: inputs,
	}
	if e.status.Workspace.ClaimRef.Name == "" && e.settings.persistent {
		e.status.Workspace.ClaimRef.Name = ClaimName(e.observation.Session.Name)
	}
}

func (e *evaluation) createAttemptObjects() {
	if e.observation.Refusal != nil {
		e.handleRefusal(e.observation.Refusal)
		return
	}
	e.extendProxyToken()
	// The attempt keeps these settings of its SessionRunner.
	runner := &e.settings.runner.Spec
	e.status.Attempt.Limits = v1alpha1.SessionAttemptLimits{ActivityLease: runner.ActivityLease}
	if most := runner.Limits.Timeout; most != nil {
		e.status.Attempt.Limits.Timeout = new(*most)
	}
	if most := runner.Limits.MaxCostUSD; most != nil {
		e.status.Attempt.Limits.MaxCostUSD = new(*most)
	}
	e.status.Attempt.LastActivityTime = nil
	if activity := e.observation.Activity; activity != nil && !activity.RenewTime.IsZero() { // of an earlier attempt
		e.status.Attempt.LeaseRenewTime = new(metav1.NewMicroTime(activity.RenewTime))
	}
	b := e.newObjectBuilder()
	inputs := b.newInputsSecret()
	template := b.newPodTemplate(inputs.Name)
	if old := e.status.Attempt.InputsRef.Name; old != "" && old != inputs.Name {
		e.decision.DeleteSecret = old
	}
	e.status.Attempt.InputsRef.Name = inputs.Name
	e.decision.ApplyObjects = b.newChildObjects(inputs)
	e.decision.DryRunPod = b.newDryRunPod(&template)
	e.decision.CreateJob = b.newJob(&template)
	if left, limited := remainingSeconds(&e.observation, &e.status); limited {
		e.decision.CreateJob.Spec.ActiveDeadlineSeconds = new(left + int64(startupAllowance/time.Second))
	}
	// A refusal stays reported until the API server has accepted the refused object.
	refusals := []string{v1alpha1.ReasonNameTaken, v1alpha1.ReasonWorkspaceNotFound, v1alpha1.ReasonServiceAccountNotFound, v1alpha1.ReasonQuotaExceeded}
	if c := meta.FindStatusCondition(e.status.Conditions, v1alpha1.ConditionBlocked); c != nil && slices.Contains(refusals, c.Reason) {
		e.obstacle = &obstacle{decision.Problem{Reason: c.Reason, Message: c.Message}, true}
	}
}

// newDryRunPod returns the Pod that the Job of the attempt will create.
func (b *objectBuilder) newDryRunPod(template *corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: b.status.Attempt.JobName + "-", Namespace: b.session.Namespace,
			Labels: template.Labels, Annotations: template.Annotations, OwnerReferences: childMetadata(b.session, "").OwnerReferences,
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// FirstPod returns the Pod of the first attempt of a new session, as far as it is known without the session's children: with another
// ServiceAccount, and without the check of the network. It returns nil if the SessionRunner does not accept the session.
func FirstPod(s *v1alpha1.AgenticSession, runner *v1alpha1.SessionRunner) *corev1.Pod {
	e := newEvaluation(Observation{Session: s, Runner: runner})
	if e.settings == nil {
		return nil
	}
	e.openAttempt()
	b := e.newObjectBuilder()
	template := b.newPodTemplate("inputs")
	pod := b.newDryRunPod(&template)
	if e.settings.template.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	return pod
}

// handleRefusal fails the run after the API server refused an object of the attempt, or waits to try again.
func (e *evaluation) handleRefusal(refusal *decision.Refusal) {
	switch refusal.Class {
	case decision.QuotaExceeded: // without a time limit: a quota has room again when other objects end
		e.waitFor(v1alpha1.ReasonQuotaExceeded, refusal.Message, false)
	case decision.AlreadyExists:
		e.waitFor(v1alpha1.ReasonNameTaken, refusal.Message, true)
	case decision.NotFound:
		e.waitFor(v1alpha1.ReasonWorkspaceNotFound, refusal.Message, true)
	case decision.ServiceAccountMissing:
		e.waitFor(v1alpha1.ReasonServiceAccountNotFound, refusal.Message, true)
	default:
		reason := v1alpha1.ReasonChildRefused
		if refusal.Kind == "Pod" || refusal.Kind == "Job" {
			reason = v1alpha1.ReasonPodRejected
		}
		e.failRun(decision.Problem{Reason: reason, Message: refusal.Message})
	}
	if e.status.Attempt.JobName == "" {
		return // the run failed
	}
	e.timer.RequeueWithin(e.retryInterval())
}
