package sequentialjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Limits of the delay before another attempt to create a blocked Job, which is as long as it has been blocked.
const (
	minBlockedRetry = time.Second
	maxBlockedRetry = time.Minute
)

const suspendedMessage = "spec.suspend is true"

// report returns the decision: the status with counts, progress, conditions and phase, what follows for the SequentialJob itself, events, and
// when to decide again.
func report(f *facts, p *progress, a *archive) Decision {
	d := Decision{Actions: p.Actions, Status: *p.status.DeepCopy()}
	notes, status, active, ttl := p.and(a.notes), &d.Status, activeStep(p.status.Steps), f.spec.TTLSecondsAfterFinished
	timer := &notes.timer
	status.Archive, d.CreateArchive = a.record, a.create
	deadline, hasDeadline := runDeadline(f.spec, status)
	switch {
	case IsFinished(status) && IsRerunRequested(f.spec, status) && CheckRerun(f.spec, status) == nil:
		timer.RequeueWithin(time.Millisecond) // until the rerun starts, the SequentialJob must not expire
	case IsFinished(status) && ttl != nil && !isArchiving(status):
		d.DeleteExpired = timer.HasReached(status.CompletionTime.Add(time.Duration(*ttl) * time.Second))
	case hasDeadline && active != nil && !IsFinally(f.spec, active.Name) && !isSuspendedBySpec(active) && f.Now.Before(deadline):
		timer.RequeueWithin(deadline.Sub(f.Now))
	}
	d.DeleteJobs = slices.Concat(p.DeleteJobs, a.deletions, surplusJobs(f, status))
	// Pods of the step may be running, and deleting the SequentialJob has to stop them first.
	d.NeedsFinalizer = active != nil && !isSuspendedBySpec(active)
	if IsFinished(status) && !d.DeleteExpired { // a deletion meanwhile removes the finalizer at once, because no Job is running
		d.ReleaseWithin = f.lagLeft(status.CompletionTime)
	}

	status.State, status.Progress = summarizeSteps(f.with(status))
	for _, row := range []struct{ condition, onlyReason, clearedReason string }{
		{v1alpha1.ConditionResourcesUnavailable, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonAvailable},
		{v1alpha1.ConditionBlocked, "", v1alpha1.ReasonNotBlocked},
	} { // they are absent until they are True for the first time, and do not change while this decision makes another attempt
		switch {
		case p.blocked != nil && (row.onlyReason == "" || row.onlyReason == p.blocked.Reason):
			f.setCondition(status, row.condition, decision.True(p.blocked.Reason, p.blocked.Message))
			since := meta.FindStatusCondition(status.Conditions, row.condition).LastTransitionTime
			timer.RequeueWithin(min(max(f.Now.Sub(since.Time), minBlockedRetry), maxBlockedRetry))
		case meta.IsStatusConditionTrue(status.Conditions, row.condition) && d.CreateJob == nil && d.Workspace == nil:
			f.setCondition(status, row.condition, decision.False(row.clearedReason, ""))
		}
	}
	f.setCondition(status, v1alpha1.ConditionSuspended, suspendedState(f.with(status)))
	stored := &f.SequentialJob.Status
	wasFinished := IsFinished(stored) && stored.Run == status.Run
	phase, reason, message := phaseOf(f.with(status))
	if recorded := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionProgressing); wasFinished && recorded != nil {
		// The spec, which says which steps are finally, may have changed since the run finished.
		phase, reason, message = stored.Phase, recorded.Reason, recorded.Message
	}
	if isCompleted(status) && !wasFinished {
		results, problems := runResults(f.with(status))
		status.Results = results
		for _, problem := range problems {
			notes.events = append(notes.events, decision.WarningEvent(v1alpha1.EventResultInvalid, actionRun, decision.TruncateMessage(problem, maxMessageBytes)))
		}
	}
	status.Phase = phase
	f.setCondition(status, v1alpha1.ConditionProgressing, decision.StateOf(phase == v1alpha1.PhaseRunning, reason, message))
	f.setCondition(status, v1alpha1.ConditionAvailable, decision.StateOf(phase == v1alpha1.PhaseCompleted, reason, message))
	failed := decision.False(v1alpha1.ReasonNotFailed, "")
	if phase == v1alpha1.PhaseFailed {
		failed = decision.True(reason, message)
	}
	f.setCondition(status, v1alpha1.ConditionFailed, failed)
	status.Reason = shortReason(status)
	decision.Set(&status.Conditions, f.SequentialJob.Generation, f.now, Summary(f.spec, status, f.Failure))
	d.Events, d.RequeueAfter = notes.events, timer.RequeueAfter
	return f.finish(d)
}

// surplusJobs returns the oldest Jobs of ended steps beyond spec.jobHistoryLimit.
func surplusJobs(f *facts, status *v1alpha1.SequentialJobStatus) []*batchv1.Job {
	if f.spec.JobHistoryLimit == nil {
		return nil
	}
	ended := slices.DeleteFunc(slices.Clone(f.Jobs), func(job *batchv1.Job) bool {
		return !job.DeletionTimestamp.IsZero() || !IsTerminal(job) || !isOutcomeRecorded(f, status, job) || keepsForArchive(f, status.Archive, job)
	})
	slices.SortFunc(ended, func(a, b *batchv1.Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return ended[:max(0, len(ended)-int(*f.spec.JobHistoryLimit))]
}

// isOutcomeRecorded reports whether an ended Job is no longer read: the status has its outcome, or it belongs to an
// earlier run or an earlier attempt.
func isOutcomeRecorded(f *facts, status *v1alpha1.SequentialJobStatus, job *batchv1.Job) bool {
	for i := range status.Steps {
		step := &status.Steps[i]
		if step.JobUID == job.UID {
			return !isActive(step.Phase) && (!canStart(step.Phase) || step.Phase == v1alpha1.StepRetrying)
		}
		for attempt := int32(1); attempt < step.Attempt && step.Run == status.Run; attempt++ {
			if job.Name == jobName(f.SequentialJob, step.Run, step.Name, attempt) {
				return true
			}
		}
	}
	run, known := runOf(job)
	return known && run < status.Run
}

// shortReason returns why the run failed or does not continue; empty if the phase is enough.
func shortReason(status *v1alpha1.SequentialJobStatus) string {
	switch failed := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionFailed); {
	case IsFinished(status) && failed != nil && failed.Reason == v1alpha1.ReasonFinallyFailed:
		return v1alpha1.ReasonFinallyFailed
	case IsFinished(status):
		return status.Progress.FailureReason
	}
	if next := nextStep(status.Steps); needsApproval(next) && status.Phase == v1alpha1.PhaseSuspended {
		return next.Reason
	}
	if reason := blockedReason(status); reason != "" {
		return reason
	}
	if status.Phase == v1alpha1.PhaseRunning && retryingStep(status.Steps) != nil && activeStep(status.Steps) == nil {
		return v1alpha1.ReasonRetrying
	}
	return ""
}

// summarizeSteps returns how many steps are active or have ended, and which step the run is at.
func summarizeSteps(sj *v1alpha1.SequentialJob) (counts v1alpha1.StepCounts, progress v1alpha1.Progress) {
	status := &sj.Status
	failed := failedStep(status.Steps)
	for i := range status.Steps {
		step, index := &status.Steps[i], int32(i)
		switch {
		case isActive(step.Phase):
			counts.Active++
		case step.Phase == v1alpha1.StepSucceeded:
			counts.Succeeded++
			progress.CompletedIndices = append(progress.CompletedIndices, index)
		case step.Phase == v1alpha1.StepFailed:
			counts.Failed++
		}
		if progress.CurrentIndex == nil && (isActive(step.Phase) || canStart(step.Phase)) {
			progress.CurrentIndex, progress.CurrentStep = new(index), step.Name
		}
		if step == failed {
			progress.FailedIndex, progress.FailureReason = new(index), step.Reason
		}
	}
	if failed != nil && IsFinished(status) {
		progress.CurrentIndex, progress.CurrentStep = progress.FailedIndex, failed.Name
	}
	if progress.FailureReason == "" && IsFinished(status) && !isCompleted(status) {
		progress.FailureReason, _ = runFailure(sj)
	}
	return counts, progress
}

// FormatProgress returns "<steps that succeeded>/<steps>" of the steps with, or without, finally; empty before the run is
// admitted. Steps that were skipped because of step.when are not counted.
func FormatProgress(sj *v1alpha1.SequentialJob, finally bool) string {
	if len(sj.Status.Steps) == 0 {
		return ""
	}
	succeeded, all := 0, 0
	for i := range sj.Status.Steps {
		step := &sj.Status.Steps[i]
		if IsFinally(&sj.Spec, step.Name) != finally || isUnwanted(step) {
			continue
		}
		all++
		if step.Phase == v1alpha1.StepSucceeded {
			succeeded++
		}
	}
	return fmt.Sprintf("%d/%d", succeeded, all)
}

func runFailure(sj *v1alpha1.SequentialJob) (reason, message string) {
	status := &sj.Status
	failed := failedStep(status.Steps)
	if failed == nil {
		if isSpecRejected(status) && status.DeadlineExceededTime == nil {
			rejection := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSpecAccepted)
			return rejection.Reason, rejection.Message
		}
		return v1alpha1.ReasonDeadlineExceeded, deadlineMessage
	}
	parts := []string{fmt.Sprintf("step %q failed: %s", failed.Name, decision.FormatReason(failed.Reason, failed.Message))}
	for i := range status.Steps {
		if other := &status.Steps[i]; other != failed && other.Phase == v1alpha1.StepFailed && !other.Tolerated && IsFinally(&sj.Spec, other.Name) {
			parts = append(parts, fmt.Sprintf("finally step %q failed too: %s", other.Name, other.Reason))
		}
	}
	message = strings.Join(parts, "; ")
	switch {
	case failed.Reason == v1alpha1.ReasonWorkspaceLost:
		return v1alpha1.ReasonWorkspaceLost, message
	case IsFinally(&sj.Spec, failed.Name):
		return v1alpha1.ReasonFinallyFailed, message
	case status.DeadlineExceededTime != nil:
		return v1alpha1.ReasonDeadlineExceeded, message
	default:
		return v1alpha1.ReasonStepFailed, message
	}
}

// blockedReason returns why the run is blocked; empty if it is not.
func blockedReason(status *v1alpha1.SequentialJobStatus) string {
	if blocked := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionBlocked); blocked != nil && blocked.Status == metav1.ConditionTrue {
		return blocked.Reason
	}
	return ""
}

// IsBlockedByPolicy reports whether a Policy does not allow an image, so that a change of a Policy may unblock the run.
func IsBlockedByPolicy(status *v1alpha1.SequentialJobStatus) bool {
	return blockedReason(status) == v1alpha1.ReasonImageNotAllowed
}

func suspendedState(sj *v1alpha1.SequentialJob) decision.State {
	spec, status := &sj.Spec, &sj.Status
	step, awaiting := activeStep(status.Steps), AwaitingApproval(sj)
	switch {
	case !spec.Suspend && awaiting != "":
		next, message := nextStep(status.Steps), fmt.Sprintf("step %q waits for an approval; run `kubectl yardmaster seq approve %s`", awaiting, sj.Name)
		if next.Message != "" {
			message = fmt.Sprintf("step %q waits for an approval: %s", awaiting, next.Message)
		}
		return decision.True(next.Reason, message)
	case !spec.Suspend || IsFinished(status):
		return decision.False(v1alpha1.ReasonNotSuspended, "")
	case step == nil || isSuspendedBySpec(step):
		return decision.True(v1alpha1.ReasonSuspended, suspendedMessage)
	default:
		return decision.False(v1alpha1.ReasonSuspending, fmt.Sprintf("waiting for step %q to end", step.Name))
	}
}

// phaseOf returns the phase, and the reason and message of the conditions that depend on it.
func phaseOf(sj *v1alpha1.SequentialJob) (phase v1alpha1.SequentialJobPhase, reason, message string) {
	status := &sj.Status
	switch step := activeStep(status.Steps); {
	case isCompleted(status):
		message = FormatProgress(sj, false) + " steps succeeded"
		if IsFinally(&sj.Spec, status.Steps[len(status.Steps)-1].Name) {
			message = fmt.Sprintf("%s steps and %s finally steps succeeded", FormatProgress(sj, false), FormatProgress(sj, true))
		}
		return v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted, message
	case IsFinished(status):
		reason, message = runFailure(sj)
		return v1alpha1.PhaseFailed, reason, message
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSuspended):
		suspended := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSuspended)
		return v1alpha1.PhaseSuspended, suspended.Reason, suspended.Message
	case step == nil && retryingStep(status.Steps) != nil:
		return v1alpha1.PhaseRunning, v1alpha1.ReasonRetrying, retryMessage(retryingStep(status.Steps))
	case step == nil:
		return v1alpha1.PhasePending, v1alpha1.ReasonWaiting, "waiting for the first step to start"
	case status.Phase != v1alpha1.PhaseRunning && hasOnlyToStart(status):
		return v1alpha1.PhasePending, v1alpha1.ReasonWaiting, fmt.Sprintf("waiting for step %q to start", step.Name)
	case IsFinally(&sj.Spec, step.Name):
		return v1alpha1.PhaseRunning, v1alpha1.ReasonRunningFinally, fmt.Sprintf("running step %q", step.Name)
	default:
		return v1alpha1.PhaseRunning, v1alpha1.ReasonRunning, fmt.Sprintf("running step %q", step.Name)
	}
}

// hasOnlyToStart reports whether no Pod of the run has run yet: its first Job waits for one.
func hasOnlyToStart(status *v1alpha1.SequentialJobStatus) bool {
	return !slices.ContainsFunc(status.Steps, func(step v1alpha1.StepStatus) bool {
		isWaiting := step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepQueued
		return step.Run == status.Run && !isUnwanted(&step) && (!isWaiting || step.Attempt > 1 || step.FailedPods > 0)
	})
}

// Summary returns Ready, Reconciling and Stalled: the first state in docs/reference/states.md that applies, with the reason and
// message of another condition. The failure is why reconciliations have failed for several seconds; empty if they have not.
func Summary(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus, failure string) decision.Summary {
	ready, progress, cause := metav1.ConditionFalse, decision.InProgress, v1alpha1.ConditionProgressing
	switch {
	case IsFinished(status) && isSpecRejected(status):
		progress, cause = decision.Stuck, v1alpha1.ConditionSpecAccepted
	case isCompleted(status):
		ready, progress, cause = metav1.ConditionTrue, decision.Settled, v1alpha1.ConditionAvailable
	case IsFinished(status):
		progress, cause = decision.Stuck, v1alpha1.ConditionFailed
	case failure != "":
		return decision.Summary{Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonRequestFailed, Message: failure, Progress: decision.InProgress}
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSuspended):
		progress, cause = decision.Settled, v1alpha1.ConditionSuspended
	case spec.Suspend:
		cause = v1alpha1.ConditionSuspended
	case slices.Contains([]string{v1alpha1.ReasonNameTaken, v1alpha1.ReasonImageNotAllowed}, blockedReason(status)):
		progress, cause = decision.Stuck, v1alpha1.ConditionBlocked
	case blockedReason(status) != "":
		cause = v1alpha1.ConditionBlocked
	}
	because := meta.FindStatusCondition(status.Conditions, cause)
	return decision.Summary{Ready: ready, Reason: because.Reason, Message: because.Message, Progress: progress}
}

const (
	actionRun         = "Run"
	actionObserveSpec = "ObserveSpec"
	actionSuspend     = "Suspend"
	actionArchive     = "Archive"
)

// statusEvents returns events for the changes between two statuses. JobCreatedEvent reports the creation of a Job.
func statusEvents(before, after *v1alpha1.SequentialJobStatus) []decision.Event {
	var events []decision.Event
	// became returns a condition that has this value now, and had another value before; nil for others.
	became := func(condition string, value metav1.ConditionStatus) *metav1.Condition {
		if meta.IsStatusConditionPresentAndEqual(after.Conditions, condition, value) && !meta.IsStatusConditionPresentAndEqual(before.Conditions, condition, value) {
			return meta.FindStatusCondition(after.Conditions, condition)
		}
		return nil
	}
	if before.Run > 0 && after.ObservedGeneration != before.ObservedGeneration && !IsFinished(before) {
		message := fmt.Sprintf("Steps that have not started use the spec of generation %d", after.ObservedGeneration)
		events = append(events, decision.WarningEvent(v1alpha1.EventSpecChanged, actionObserveSpec, message))
	}
	if rejected := became(v1alpha1.ConditionSpecAccepted, metav1.ConditionFalse); rejected != nil {
		events = append(events, decision.WarningEvent(v1alpha1.EventSpecRejected, actionObserveSpec, rejected.Message))
	}
	if after.Run > before.Run && before.Run > 0 {
		events = append(events, decision.NormalEvent(v1alpha1.EventRerunStarted, actionRun, fmt.Sprintf("Run %d started", after.Run)))
	}
	for i := range after.Steps {
		events = append(events, stepEvents(findStep(before.Steps, after.Steps[i].Name), &after.Steps[i])...)
	}
	switch archive := after.Archive; {
	case !HasArchiveEnded(before.Archive, archive):
	case archive.Error != "":
		message := fmt.Sprintf("The logs of run %d are not archived: %s", archive.Run, decision.FormatReason(archive.Reason, archive.Error))
		events = append(events, decision.WarningEvent(v1alpha1.EventArchiveFailed, actionArchive, message))
	default:
		message := decision.FormatReason(fmt.Sprintf("The logs of run %d are archived in %s", archive.Run, archive.Location), archive.Message)
		events = append(events, decision.RoutineEvent(v1alpha1.EventLogsArchived, actionArchive, message))
	}
	wasSuspended := meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionSuspended)
	if wasSuspended && became(v1alpha1.ConditionSuspended, metav1.ConditionFalse) != nil {
		events = append(events, decision.NormalEvent(v1alpha1.EventResumed, actionSuspend, "The run continues"))
	}
	if reason := blockedEvent(after); reason != "" && reason != blockedEvent(before) {
		blocked := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionBlocked)
		events = append(events, decision.WarningEvent(reason, actionRun, blocked.Message))
	}
	for _, row := range []struct {
		condition, reason, action string
		newEvent                  func(reason, action, message string) decision.Event
	}{
		{v1alpha1.ConditionSuspended, v1alpha1.EventSuspended, actionSuspend, decision.NormalEvent},
		{v1alpha1.ConditionAvailable, v1alpha1.EventCompleted, actionRun, decision.RoutineEvent},
		{v1alpha1.ConditionFailed, v1alpha1.EventFailed, actionRun, decision.WarningEvent},
	} {
		if condition := became(row.condition, metav1.ConditionTrue); condition != nil {
			events = append(events, row.newEvent(row.reason, row.action, condition.Message))
		}
	}
	return events
}

// HasArchiveEnded reports whether an archive of logs ended between two statuses.
func HasArchiveEnded(before, after *v1alpha1.SequenceArchiveStatus) bool {
	return after != nil && after.CompletionTime != nil && (before == nil || before.Run != after.Run || before.CompletionTime == nil)
}

// stepEvents returns events for a step, which may have passed several phases since the status was last stored.
func stepEvents(before, after *v1alpha1.StepStatus) []decision.Event {
	if before == nil {
		before = &v1alpha1.StepStatus{Phase: v1alpha1.StepPending}
	}
	var events []decision.Event
	sameAttempt := before.Run == after.Run && before.Attempt == after.Attempt
	if !sameAttempt && after.Attempt > 1 && (after.Reason == v1alpha1.ReasonJobLost || after.Reason == v1alpha1.ReasonOutcomeUnknown) {
		lost := "Job"
		if after.Reason == v1alpha1.ReasonOutcomeUnknown {
			lost = "Pod"
		}
		message := fmt.Sprintf("The %s of step %s was deleted before its outcome was recorded; attempt %d starts", lost, after.Name, after.Attempt)
		events = append(events, decision.WarningEvent(v1alpha1.EventJobLost, actionRun, message))
	}
	if sameAttempt && before.Phase == after.Phase {
		return events
	}
	switch after.Phase {
	case v1alpha1.StepSucceeded:
		events = append(events, decision.RoutineEvent(v1alpha1.EventJobCompleted, actionRun, fmt.Sprintf("Job %s of step %s completed", after.JobName, after.Name)))
	case v1alpha1.StepRetrying:
		events = append(events, decision.WarningEvent(v1alpha1.EventJobFailed, actionRun, retryMessage(after)))
	case v1alpha1.StepFailed:
		message := fmt.Sprintf("Step %s failed: %s", after.Name, decision.FormatReason(after.Reason, after.Message))
		events = append(events, decision.WarningEvent(v1alpha1.EventJobFailed, actionRun, message))
	}
	return events
}

// blockedEvent returns the reason of the event about a blocked run; empty if the run is not blocked.
func blockedEvent(status *v1alpha1.SequentialJobStatus) string {
	switch blockedReason(status) {
	case "":
		return ""
	case v1alpha1.ReasonNameTaken:
		return v1alpha1.EventNameConflict
	case v1alpha1.ReasonImageNotAllowed:
		return v1alpha1.EventPolicyViolated
	case v1alpha1.ReasonQuotaExceeded:
		return v1alpha1.EventResourcesUnavailable
	default:
		return v1alpha1.EventBlocked
	}
}

// JobCreatedEvent reports that a step's Job was created.
func JobCreatedEvent(job *batchv1.Job) decision.Event {
	return decision.RoutineEvent(v1alpha1.EventJobStarted, actionRun, fmt.Sprintf("Created Job %s for step %s", job.Name, job.Labels[v1alpha1.LabelStep]))
}
