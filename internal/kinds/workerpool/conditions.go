package workerpool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

func (r *report) setConditions() {
	r.setWorkerConditions()
	r.setScalingConditions()
	if r.rollout.isEvaluated {
		r.setRolloutConditions()
	}
	decision.Set(&r.status.Conditions, r.Pool.Generation, metav1.NewTime(r.now), r.summarize())
}

func (r *report) setCondition(kind string, state decision.State) {
	decision.SetState(&r.status.Conditions, r.Pool.Generation, metav1.NewTime(r.now), kind, state)
}

// availability reports whether enough workers are ready.
func (r *report) availability() (available bool, message string) {
	minimum := r.demand.desired
	if autoscaling := r.Pool.Spec.Autoscaling; autoscaling != nil {
		minimum = min(autoscaling.MinReplicas, minimum)
	}
	return r.status.Ready >= minimum,
		fmt.Sprintf("%d of %d workers are ready; the minimum is %d", r.status.Ready, r.demand.desired, minimum)
}

func (r *report) setRolloutConditions() {
	name, ready, desired := r.updated.Name, r.status.Ready, r.demand.desired
	failure, stalled, start := r.rollout.history.FailureMessage, r.stalledProgress(), r.updated.startFailure()

	paused := decision.False(v1alpha1.ReasonRollingOut, "")
	switch {
	case failure != "":
		paused = decision.True(v1alpha1.ReasonAnalysisFailed, fmt.Sprintf("revision %s failed and was rolled back: %s", name, failure))
	case r.rollout.isComplete:
		paused = decision.False(v1alpha1.ReasonRolledOut, "")
	case start != nil:
		paused = decision.True(start.Reason, start.Message)
	}
	r.setCondition(v1alpha1.ConditionRolloutPaused, paused)

	progressing := decision.True(v1alpha1.ReasonRollingOut, r.progressMessage())
	switch {
	case r.rollout.isComplete && ready >= desired:
		progressing = decision.True(v1alpha1.ReasonRolledOut, fmt.Sprintf("all workers are of revision %s%s", name, r.shortGraceMessage()))
	case r.rollout.isComplete:
		progressing = decision.True(v1alpha1.ReasonWorkersStarting, fmt.Sprintf("%d of %d workers of revision %s are ready", ready, desired, name))
	case failure != "":
		progressing = decision.False(v1alpha1.ReasonAnalysisFailed, failure)
	case stalled != nil:
		progressing = decision.False(stalled.Reason, stalled.Message)
	}
	r.setCondition(v1alpha1.ConditionProgressing, progressing)
}

// stalledProgress returns the problem of a rollout that exceeded its progress deadline; nil if it did not. A pool that
// needs no workers, and a rollout that waits in a canary step, have no deadline.
func (r *report) stalledProgress() *decision.Problem {
	deadline := defaultProgressDeadline
	if r.rolloutSpec.ProgressDeadline != nil {
		deadline = r.rolloutSpec.ProgressDeadline.Duration.Duration
	}
	last := r.updated.Created
	if r.rollout.history.LastProgress.After(last) {
		last = r.rollout.history.LastProgress
	}
	if r.demand.desired == 0 || !r.rollout.history.StepReached.IsZero() || r.now.Sub(last) <= deadline {
		return nil
	}
	return &decision.Problem{Reason: v1alpha1.ReasonNoProgress, Message: fmt.Sprintf("revision %s has made no progress for %s", r.updated.Name, deadline)}
}

func (r *report) progressMessage() string {
	proven, steps := r.plan.updated.countWorkers(r.rollout.proof.isProven), len(r.rolloutSpec.Steps)
	text := fmt.Sprintf("revision %s: %d of %d workers have proven to work", r.updated.Name, proven, r.demand.desired)
	if r.rolloutSpec.Strategy == v1alpha1.RolloutCanary && r.rollout.history.CanaryStep < steps {
		text += fmt.Sprintf(", step %d of %d", r.rollout.history.CanaryStep+1, steps)
	}
	return text
}

// shortGraceMessage warns if an evicted worker of the updated revision has less time than a drained worker.
func (r *report) shortGraceMessage() string {
	grace, timeout := TerminationGraceOf(PodSpecOf(r.updated.workload)), r.drain.Timeout.Duration.Duration
	switch {
	case grace >= timeout || r.drain.OnTimeout == v1alpha1.DrainRequeue:
		return ""
	case r.builder.defaultGrace:
		return fmt.Sprintf("; evicted workers have %s, less than drain.timeout: the next revision gives them %s", grace, r.builder.terminationGrace)
	default:
		return fmt.Sprintf("; evicted workers have %s, less than drain.timeout: increase drain.terminationGrace", grace)
	}
}

// Reasons of scaling decisions: with inactiveReasons, a decision does not follow the metrics; with limitingReasons, a
// pool may have fewer workers than recommended.
var (
	inactiveReasons = []scaling.Reason{scaling.ReasonPaused, scaling.ReasonDryRun, scaling.ReasonStatsUnavailable, scaling.ReasonFallback}
	limitingReasons = []scaling.Reason{
		scaling.ReasonMaxReplicas, scaling.ReasonBudget, scaling.ReasonRateLimit, scaling.ReasonMaxInFlight, scaling.ReasonThroughputSaturated,
	}
)

// setScalingConditions sets the conditions of metrics and, if it was evaluated, of scaling.
func (r *report) setScalingConditions() {
	fresh := decision.True(v1alpha1.ReasonMetricsFresh, "")
	if r.Stats == nil {
		fresh = decision.False(v1alpha1.ReasonMetricsStale, r.StatsError)
	}
	r.setCondition(v1alpha1.ConditionMetricsFresh, fresh)

	active, limited := decision.True(v1alpha1.ReasonAutoscaled, ""), decision.False(v1alpha1.ReasonWithinBounds, "")
	made, replicas := r.demand.decision, r.Pool.Spec.Replicas
	switch {
	case r.Pool.Spec.Autoscaling == nil:
		active = decision.False(v1alpha1.ReasonManual, "spec.replicas sets the number of workers")
		if replicas != nil && r.demand.desired < *replicas && !r.isDeleting {
			limited = decision.True(string(scaling.ReasonBudget), fmt.Sprintf("spec.replicas is %d, Policies allow %d", *replicas, r.demand.limit))
		}
	case made == nil:
		return
	default:
		if slices.Contains(inactiveReasons, made.Reason) {
			active = decision.False(string(made.Reason), r.status.LastDecision.Message)
		}
		if made.Recommended != r.demand.desired && slices.Contains(limitingReasons, made.Reason) {
			limited = decision.True(string(made.Reason), r.status.LastDecision.Message)
		}
	}
	r.setCondition(v1alpha1.ConditionScalingActive, active)
	r.setCondition(v1alpha1.ConditionScalingLimited, limited)
}

// setWorkerConditions sets the conditions Available, Draining, DrainTimedOut and Degraded.
func (r *report) setWorkerConditions() {
	available := decision.False(v1alpha1.ReasonMinimumUnavailable, "")
	isAvailable, message := r.availability()
	if isAvailable {
		available = decision.True(v1alpha1.ReasonMinimumAvailable, "")
	}
	available.Message = message
	r.setCondition(v1alpha1.ConditionAvailable, available)

	draining := decision.False(v1alpha1.ReasonDrained, "")
	if r.status.Draining > 0 {
		draining = decision.True(v1alpha1.ReasonDrainsRunning, fmt.Sprintf("%d workers are draining", r.status.Draining))
	}
	r.setCondition(v1alpha1.ConditionDraining, draining)

	var late []string
	var failure *decision.Problem
	for _, revision := range r.plan.revisions {
		failure = cmp.Or(failure, revision.startFailure())
		for _, w := range revision.workers {
			if r.drain.hasTimedOut(w) {
				late = append(late, w.Name)
			}
		}
	}
	timedOut := decision.False(v1alpha1.ReasonDrained, "")
	if len(late) > 0 {
		timedOut = decision.True(v1alpha1.ReasonDrainTimeout, fmt.Sprintf("%d workers still have messages in flight after %s: %s",
			len(late), r.drain.Timeout.Duration.Duration, summarizeNames(late)))
	}
	r.setCondition(v1alpha1.ConditionDrainTimedOut, timedOut)
	degraded := decision.False(v1alpha1.ReasonReady, "")
	if failure != nil {
		degraded = decision.True(failure.Reason, failure.Message)
	}
	r.setCondition(v1alpha1.ConditionDegraded, degraded)
}

// summarizeNames lists the first three names, and the number of the others.
func summarizeNames(names []string) string {
	const listed = 3
	slices.Sort(names)
	if len(names) > listed {
		return strings.Join(names[:listed], ", ") + fmt.Sprintf(" and %d more", len(names)-listed)
	}
	return strings.Join(names, ", ")
}

// waitingReasons are the reasons of problems that can end without a change of the pool, such as a missing object or an
// exhausted quota.
var waitingReasons = []string{
	v1alpha1.ReasonQueueNotFound, v1alpha1.ReasonQueueNotReady, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonNoBroker,
	v1alpha1.ReasonConnectionFailed, v1alpha1.ReasonPending, v1alpha1.ReasonQuotaExceeded,
}

func problemSummary(ready metav1.ConditionStatus, problem *decision.Problem) decision.Summary {
	summary := decision.Summary{Ready: ready, Reason: problem.Reason, Message: problem.Message, Progress: decision.Stuck}
	if slices.Contains(waitingReasons, problem.Reason) {
		summary.Progress = decision.InProgress
	}
	return summary
}

// summarize determines Ready, Reconciling and Stalled.
func (r *report) summarize() decision.Summary {
	available, message := r.availability()
	start := r.updated.startFailure()
	stopped := cmp.Or(start, r.stalledProgress()) // a rollout that cannot continue
	if failure := r.rollout.history.FailureMessage; failure != "" {
		stopped = &decision.Problem{Reason: v1alpha1.ReasonAnalysisFailed, Message: failure}
	}
	isSleeping := r.demand.desired == 0 && r.status.Replicas == 0
	switch {
	case r.isDeleting:
		return decision.Summary{Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeleting, Message: r.deletionMessage(), Progress: decision.InProgress}
	case r.problem != nil:
		return problemSummary(metav1.ConditionFalse, r.problem)
	case r.Refusal != nil:
		return problemSummary(metav1.ConditionFalse, refusalProblem(r.Refusal))
	case !r.rollout.isComplete && stopped != nil: // workers of the old revision may still serve
		return problemSummary(decision.StatusOf(available), stopped)
	case !available && start != nil && start.Reason == v1alpha1.ReasonQuotaExceeded:
		return problemSummary(metav1.ConditionFalse, start)
	case !available:
		return decision.Summary{Ready: metav1.ConditionFalse, Reason: v1alpha1.ReasonMinimumUnavailable, Message: message, Progress: decision.InProgress}
	case !r.rollout.isComplete && !isSleeping:
		return decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonRollingOut, Message: r.progressMessage(), Progress: decision.InProgress}
	default:
		return decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Progress: decision.Settled}
	}
}

func (r *report) deletionMessage() string {
	switch remaining := r.status.Replicas; {
	case remaining == 0:
		return "all workers are drained"
	case r.Stats == nil:
		return fmt.Sprintf("%d workers are draining, but the broker cannot confirm that they have finished (%s); "+
			"to delete the WorkerPool anyway, annotate it with %s=true", remaining, r.StatsError, AnnotationAbandon)
	default:
		return fmt.Sprintf("waiting for %d workers to drain", remaining)
	}
}

func refusalProblem(refusal *decision.Refusal) *decision.Problem {
	object := refusal.Kind + " " + refusal.Name
	switch refusal.Class {
	case decision.QuotaExceeded:
		return &decision.Problem{Reason: v1alpha1.ReasonQuotaExceeded, Message: fmt.Sprintf("waiting for quota for %s: %s", object, refusal.Message)}
	case decision.PolicyDenied:
		return &decision.Problem{Reason: v1alpha1.ReasonPolicyDenied, Message: fmt.Sprintf("%s was denied: %s", object, refusal.Message)}
	case decision.AlreadyExists:
		return &decision.Problem{Reason: v1alpha1.ReasonNameTaken, Message: refusal.Message}
	default:
		return &decision.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: fmt.Sprintf("%s was refused as invalid: %s", object, refusal.Message)}
	}
}
