package workerpool

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// conditionVerdict is the status of a condition and the reason for it.
type conditionVerdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// conditionRules are the pool's own conditions. A rule that returns nil leaves its condition
// unchanged.
var conditionRules = []struct {
	kind     string
	evaluate func(*evaluation) *conditionVerdict
}{
	{v1alpha1.ConditionAvailable, availableVerdict},
	{v1alpha1.ConditionRolloutPaused, rolloutPausedVerdict},
	{v1alpha1.ConditionProgressing, progressingVerdict},
	{v1alpha1.ConditionMetricsFresh, metricsFreshVerdict},
	{v1alpha1.ConditionScalingActive, scalingActiveVerdict},
	{v1alpha1.ConditionScalingLimited, scalingLimitedVerdict},
	{v1alpha1.ConditionDraining, drainingVerdict},
	{v1alpha1.ConditionDrainTimedOut, drainTimedOutVerdict},
	{v1alpha1.ConditionDegraded, degradedVerdict},
}

func isTrue(reason, format string, values ...any) *conditionVerdict {
	return &conditionVerdict{metav1.ConditionTrue, reason, fmt.Sprintf(format, values...)}
}

func isFalse(reason, format string, values ...any) *conditionVerdict {
	return &conditionVerdict{metav1.ConditionFalse, reason, fmt.Sprintf(format, values...)}
}

// setConditions sets all conditions of the pool.
func (e *evaluation) setConditions() {
	generation, now := e.observation.Pool.Generation, metav1.NewTime(e.now)
	for _, rule := range conditionRules {
		if verdict := rule.evaluate(e); verdict != nil {
			meta.SetStatusCondition(&e.status.Conditions, metav1.Condition{
				Type: rule.kind, Status: verdict.status, Reason: verdict.reason, Message: verdict.message,
				ObservedGeneration: generation, LastTransitionTime: now,
			})
		}
	}
	decision.Set(&e.status.Conditions, generation, now, summarize(e))
}

func availableVerdict(e *evaluation) *conditionVerdict {
	available, message := e.availability()
	if available {
		return isTrue(v1alpha1.ReasonMinimumAvailable, "%s", message)
	}
	return isFalse(v1alpha1.ReasonMinimumUnavailable, "%s", message)
}

// availability reports whether as many workers are ready as the pool needs to be available.
func (e *evaluation) availability() (available bool, message string) {
	minimum := e.desired
	if autoscaling := e.observation.Pool.Spec.Autoscaling; autoscaling != nil {
		minimum = min(autoscaling.MinReplicas, e.desired)
	}
	return e.status.Ready >= minimum, fmt.Sprintf("%d of %d workers are ready; the minimum is %d", e.status.Ready, e.desired, minimum)
}

// hasNoRollout reports whether the rollout was not evaluated.
func (e *evaluation) hasNoRollout() bool { return e.problem != nil || e.isDeleting() }

func rolloutPausedVerdict(e *evaluation) *conditionVerdict {
	failure := e.updated.startFailure()
	switch {
	case e.hasNoRollout():
		return nil
	case e.updated.newHistory.FailureMessage != "":
		return isTrue(v1alpha1.ReasonAnalysisFailed, "revision %s failed and was rolled back: %s", e.updated.Name, e.updated.newHistory.FailureMessage)
	case e.rolloutComplete:
		return isFalse(v1alpha1.ReasonRolledOut, "")
	case failure != nil:
		return isTrue(failure.Reason, "%s", failure.Message)
	default:
		return isFalse(v1alpha1.ReasonRollingOut, "")
	}
}

func progressingVerdict(e *evaluation) *conditionVerdict {
	stalled := e.stalledProgress()
	switch {
	case e.hasNoRollout():
		return nil
	case e.rolloutComplete && e.status.Ready >= e.desired:
		return isTrue(v1alpha1.ReasonRolledOut, "all workers are of revision %s%s", e.updated.Name, e.shortGraceMessage())
	case e.rolloutComplete:
		return isTrue(v1alpha1.ReasonWorkersStarting, "%d of %d workers of revision %s are ready", e.status.Ready, e.desired, e.updated.Name)
	case e.updated.newHistory.FailureMessage != "":
		return isFalse(v1alpha1.ReasonAnalysisFailed, "%s", e.updated.newHistory.FailureMessage)
	case stalled != nil:
		return isFalse(stalled.Reason, "%s", stalled.Message)
	default:
		return isTrue(v1alpha1.ReasonRollingOut, "%s", e.progressMessage())
	}
}

// shortGraceMessage warns if an evicted worker of the updated revision has less time than a drained one.
func (e *evaluation) shortGraceMessage() string {
	grace, timeout := TerminationGraceOf(PodSpecOf(e.updated.workload)), e.drain.Timeout.Duration.Duration
	switch {
	case grace >= timeout || e.drain.OnTimeout == v1alpha1.DrainRequeue:
		return ""
	case e.builder.defaultGrace:
		return fmt.Sprintf("; evicted workers have %s, less than drain.timeout: the next revision gives them %s", grace, e.builder.terminationGrace())
	default:
		return fmt.Sprintf("; evicted workers have %s, less than drain.timeout: increase drain.terminationGrace", grace)
	}
}

func metricsFreshVerdict(e *evaluation) *conditionVerdict {
	if e.observation.Stats == nil {
		return isFalse(v1alpha1.ReasonMetricsStale, "%s", e.observation.StatsError)
	}
	return isTrue(v1alpha1.ReasonMetricsFresh, "")
}

// inactiveReasons are the reasons of scaling decisions that do not follow the metrics.
var inactiveReasons = []scaling.Reason{
	scaling.ReasonPaused, scaling.ReasonDryRun, scaling.ReasonStatsUnavailable, scaling.ReasonFallback,
}

func scalingActiveVerdict(e *evaluation) *conditionVerdict {
	switch {
	case e.observation.Pool.Spec.Autoscaling == nil:
		return isFalse(v1alpha1.ReasonManual, "spec.replicas sets the number of workers")
	case e.scalingDecision == nil: // scaling was not evaluated
		return nil
	case slices.Contains(inactiveReasons, e.scalingDecision.Reason):
		return isFalse(string(e.scalingDecision.Reason), "%s", e.status.LastDecision.Message)
	default:
		return isTrue(v1alpha1.ReasonAutoscaled, "")
	}
}

// limitingReasons are the reasons for which a pool may have fewer workers than recommended.
var limitingReasons = []scaling.Reason{
	scaling.ReasonMaxReplicas, scaling.ReasonBudget, scaling.ReasonRateLimit,
	scaling.ReasonMaxInFlight, scaling.ReasonThroughputSaturated,
}

func scalingLimitedVerdict(e *evaluation) *conditionVerdict {
	decision := e.scalingDecision
	switch replicas := e.observation.Pool.Spec.Replicas; {
	case e.observation.Pool.Spec.Autoscaling == nil:
		if replicas != nil && e.desired < *replicas && !e.isDeleting() {
			return isTrue(string(scaling.ReasonBudget), "spec.replicas is %d, Policies allow %d", *replicas, e.replicaLimit)
		}
	case decision == nil:
		return nil
	case decision.Recommended != e.desired && slices.Contains(limitingReasons, decision.Reason):
		return isTrue(string(decision.Reason), "%s", e.status.LastDecision.Message)
	}
	return isFalse(v1alpha1.ReasonWithinBounds, "")
}

func drainingVerdict(e *evaluation) *conditionVerdict {
	if e.status.Draining == 0 {
		return isFalse(v1alpha1.ReasonDrained, "")
	}
	return isTrue(v1alpha1.ReasonDrainsRunning, "%d workers are draining", e.status.Draining)
}

func drainTimedOutVerdict(e *evaluation) *conditionVerdict {
	var late []string
	for _, r := range e.revisions {
		for _, w := range r.workers {
			if e.drain.hasTimedOut(w) {
				late = append(late, w.Name)
			}
		}
	}
	if len(late) == 0 {
		return isFalse(v1alpha1.ReasonDrained, "")
	}
	return isTrue(v1alpha1.ReasonDrainTimeout, "%d workers still have messages in flight after %s: %s",
		len(late), e.drain.Timeout.Duration.Duration, summarizeNames(late))
}

func degradedVerdict(e *evaluation) *conditionVerdict {
	for _, r := range e.revisions {
		if failure := r.startFailure(); failure != nil {
			return isTrue(failure.Reason, "%s", failure.Message)
		}
	}
	return isFalse(v1alpha1.ReasonReady, "")
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
