package workerpool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// report has the results of the other stages, and the status.
type report struct {
	*fleet
	demand  *demand
	rollout *rollout
	plan    *plan
	status  *v1alpha1.WorkerPoolStatus
	// undone is that work is due and none finishes; nil if work finishes.
	undone *decision.Problem
}

// maxStatusRevisions is the maximum number of revisions in a status.
const maxStatusRevisions = 16

func newReport(f *fleet, d *demand, r *rollout, p *plan) *report {
	s := f.Pool.Status.DeepCopy()
	s.ObservedGeneration = f.Pool.Generation
	s.Selector = k8slabels.SelectorFromSet(WorkerSelector(f.Pool.Name)).String()
	s.Desired, s.LastDecision, s.IdleSince = d.desired, d.explanation.DeepCopy(), nil
	if idleSince := d.memory.IdleSince; !idleSince.IsZero() {
		s.IdleSince = new(metav1.NewTime(idleSince.Truncate(time.Second)))
	}
	s.Replicas = sumOf(p.revisions, (*revisionState).liveWorkers)
	s.Ready = sumOf(p.revisions, (*revisionState).availableWorkers)
	s.Draining = sumOf(p.revisions, (*revisionState).drainingWorkers)
	s.Busy = countIfAllAnswer(p.revisions, func(stats *WorkerStats) bool { return stats.InFlight > 0 })
	s.OpenBreakers = countIfAllAnswer(p.revisions, func(stats *WorkerStats) bool { return stats.BreakerOpen })
	s.Snoozed = nil
	s.CurrentRevision, s.UpdatedRevision = r.currentRevision, f.updated.Name
	s.Revisions = nil
	for _, r := range p.revisions[:min(len(p.revisions), maxStatusRevisions)] {
		status := v1alpha1.RevisionStatus{
			Name: r.Name, Version: r.Version, Image: r.Image,
			WorkerCounts: v1alpha1.WorkerCounts{Replicas: r.liveWorkers(), Ready: r.availableWorkers(), Draining: r.drainingWorkers()},
		}
		var outcomes Outcomes
		snoozed := int64(0)
		for _, w := range r.workers {
			reported, _ := w.reportedOutcomes()
			outcomes = outcomes.plus(reported)
			if w.Stats != nil {
				snoozed += max(ptr.Deref(w.Stats.Snoozed, 0), 0)
			}
		}
		if outcomes.total()+snoozed > 0 {
			status.Succeeded, status.Failed, status.Snoozed = new(outcomes.Succeeded), new(outcomes.Failed), new(snoozed)
		}
		s.Revisions = append(s.Revisions, status)
	}
	s.Effective = f.effective
	s.MessageCounts, s.WaitP95 = v1alpha1.MessageCounts{}, nil
	if f.Stats != nil {
		s.Backlog, s.Snoozed = new(f.Stats.Waiting), new(f.Stats.Returned)
		if f.Stats.InFlightKnown {
			s.InFlight = new(f.Stats.InFlight)
		}
		if f.Stats.WaitP95 != nil {
			s.WaitP95 = &metav1.Duration{Duration: *f.Stats.WaitP95}
		}
	}
	result := &report{fleet: f, demand: d, rollout: r, plan: p, status: s, undone: f.undoneProblem(d.desired)}
	s.ObjectiveMet = objectiveMet(f.Pool.Spec.Autoscaling, f.Stats, result.undone != nil)
	result.setWorkerConditions()
	result.setScalingConditions()
	if r.isEvaluated {
		result.setRolloutConditions()
	}
	decision.Set(&s.Conditions, f.Pool.Generation, metav1.NewTime(f.now), result.summarize())
	return result
}

// countIfAllAnswer counts the workers whose stats match; nil if a ready worker does not answer.
func countIfAllAnswer(revisions []*revisionState, matches func(*WorkerStats) bool) *int32 {
	count := int32(0)
	for _, r := range revisions {
		for _, w := range r.workers {
			switch {
			case w.Stats != nil && matches(w.Stats):
				count++
			case w.Stats == nil && w.IsReady():
				return nil
			}
		}
	}
	return &count
}

// objectiveMet compares the measured waiting time with the objective; "" without an objective. While no work finishes, nothing measures how
// long messages wait.
func objectiveMet(autoscaling *v1alpha1.Autoscaling, stats *QueueStats, isUndone bool) metav1.ConditionStatus {
	if autoscaling == nil || autoscaling.WaitP95 == nil {
		return ""
	}
	objective := autoscaling.WaitP95.Duration.Duration
	switch {
	case stats == nil:
		return metav1.ConditionUnknown
	case stats.IsIdle():
		return metav1.ConditionTrue
	case isUndone:
		return metav1.ConditionFalse
	case stats.WaitP95 != nil:
		return decision.StatusOf(*stats.WaitP95 <= objective)
	case stats.OldestAge > objective:
		return metav1.ConditionFalse
	case stats.Backlog == 0:
		return metav1.ConditionTrue
	}
	return metav1.ConditionUnknown
}

func (r *report) setCondition(kind string, state decision.State) {
	decision.SetState(&r.status.Conditions, r.Pool.Generation, metav1.NewTime(r.now), kind, state)
}

func (r *report) setRolloutConditions() {
	name, ready, desired := r.updated.Name, r.status.Ready, r.demand.desired
	failure, stalled, idle := r.rollout.history.FailureMessage, r.stalledProgress(), r.updated.failure

	proven, steps := r.plan.updated.countWorkers(r.rollout.proof.isProven), len(r.rolloutSpec.Steps)
	progress := fmt.Sprintf("revision %s: %d of %d workers have proven to work", name, proven, desired)
	if r.rolloutSpec.Strategy == v1alpha1.RolloutCanary && r.rollout.history.CanaryStep < steps {
		progress += fmt.Sprintf(", step %d of %d", r.rollout.history.CanaryStep+1, steps)
	}
	progressing := decision.True(v1alpha1.ReasonRollingOut, progress)
	switch {
	case r.rollout.isComplete && ready >= desired:
		progressing = decision.True(v1alpha1.ReasonRolledOut, "all workers are of revision "+name)
		// An evicted worker may have less time than a drained worker.
		grace, timeout := TerminationGraceOf(&TemplateOf(r.updated.workload).Spec), r.drain.Timeout.Duration.Duration
		switch {
		case grace >= timeout || r.drain.OnTimeout == v1alpha1.DrainRequeue:
		case r.builder.defaultGrace:
			progressing.Message += fmt.Sprintf("; evicted workers have %s, less than drain.timeout: the next revision gives them %s", grace, r.builder.terminationGrace)
		default:
			progressing.Message += fmt.Sprintf("; evicted workers have %s, less than drain.timeout: increase drain.terminationGrace", grace)
		}
	case r.rollout.isComplete:
		progressing = decision.True(v1alpha1.ReasonWorkersStarting, fmt.Sprintf("%d of %d workers of revision %s are ready", ready, desired, name))
	case failure != "":
		progressing = decision.False(v1alpha1.ReasonAnalysisFailed, failure)
	case idle != nil:
		progressing = decision.False(idle.Reason, idle.Message)
	case stalled != nil:
		progressing = decision.False(stalled.Reason, stalled.Message)
	}
	r.setCondition(v1alpha1.ConditionProgressing, progressing)
}

// stalledProgress returns the problem of a rollout that exceeded its progress deadline; nil if it did not. A pool that
// needs no workers, and a rollout that waits in a canary step which can end, have no deadline.
func (r *report) stalledProgress() *decision.Problem {
	deadline := decision.DurationOr(r.rolloutSpec.ProgressDeadline, defaultProgressDeadline)
	last := r.updated.Created
	if r.rollout.history.LastProgress.After(last) {
		last = r.rollout.history.LastProgress
	}
	isInStep := !r.rollout.history.StepReached.IsZero()
	if r.demand.desired == 0 || isInStep && r.stepCanEnd() || r.now.Sub(last) <= deadline {
		return nil
	}
	message := fmt.Sprintf("revision %s has made no progress for %s", r.updated.Name, deadline)
	if isInStep {
		message += ": a step without a pause ends after analysis.minSamples messages, and the workers report none"
	}
	return &decision.Problem{Reason: v1alpha1.ReasonNoProgress, Message: message}
}

// stepCanEnd reports whether the canary step has a pause, or workers that report the outcomes that it waits for.
func (r *report) stepCanEnd() bool {
	step := r.rollout.history.CanaryStep
	hasPause := step < len(r.rolloutSpec.Steps) && r.rolloutSpec.Steps[step].Pause != nil
	return hasPause || r.updated.countWorkers(func(w *workerState) bool { _, ok := w.reportedOutcomes(); return ok }) > 0
}

// limitingReasons are the reasons of scaling decisions with which a pool may have fewer workers than recommended.
var limitingReasons = []scaling.Reason{
	scaling.ReasonMaxReplicas, scaling.ReasonBudget, scaling.ReasonRateLimit, scaling.ReasonMaxInFlight, scaling.ReasonThroughputSaturated,
}

// setScalingConditions sets the conditions ScalingActive and, if it was evaluated, ScalingLimited. Metrics that cannot be
// read are the first reason for both, because a pool of a fixed size needs them to drain workers.
func (r *report) setScalingConditions() {
	active, limited := decision.True(v1alpha1.ReasonAutoscaled, ""), decision.False(v1alpha1.ReasonWithinBounds, "")
	made, replicas, isEvaluated := r.demand.decision, r.Pool.Spec.Replicas, true
	switch {
	case r.Pool.Spec.Autoscaling == nil:
		active = decision.False(v1alpha1.ReasonManual, "spec.replicas sets the number of workers")
		isEvaluated = r.isDeleting || r.problem == nil // otherwise, the limit is unknown
		if replicas != nil && r.demand.desired < *replicas && !r.isDeleting {
			limited = decision.True(string(scaling.ReasonBudget), fmt.Sprintf("spec.replicas is %d, Policies allow %d", *replicas, r.demand.limit))
		}
	case r.isDeleting:
		active, isEvaluated = decision.False(v1alpha1.ReasonDeleting, ""), false
	case made == nil:
		active, isEvaluated = decision.False(r.problem.Reason, r.problem.Message), false
	default:
		if made.Reason == scaling.ReasonSuspended {
			active = decision.False(string(made.Reason), r.demand.summary)
		}
		if made.Recommended != r.demand.desired && slices.Contains(limitingReasons, made.Reason) {
			limited = decision.True(string(made.Reason), r.demand.summary)
		}
	}
	if r.Stats == nil {
		active = decision.False(v1alpha1.ReasonMetricsStale, r.StatsError)
	}
	r.setCondition(v1alpha1.ConditionScalingActive, active)
	if isEvaluated {
		r.setCondition(v1alpha1.ConditionScalingLimited, limited)
	}
}

// maxListedNames is the number of names in a message.
const maxListedNames = 3

// setWorkerConditions sets the conditions Available and Degraded.
func (r *report) setWorkerConditions() {
	minimum := r.demand.desired
	if autoscaling := r.Pool.Spec.Autoscaling; autoscaling != nil {
		minimum = min(autoscaling.MinReplicas, minimum)
	}
	message := fmt.Sprintf("%d of %d workers are ready; the minimum is %d", r.status.Ready, r.demand.desired, minimum)
	available := decision.False(v1alpha1.ReasonMinimumUnavailable, message)
	if r.status.Ready >= minimum {
		available = decision.True(v1alpha1.ReasonMinimumAvailable, message)
	}
	r.setCondition(v1alpha1.ConditionAvailable, available)

	var late []string
	silent := 0
	var failure *decision.Problem
	for _, revision := range r.plan.revisions {
		failure = cmp.Or(failure, revision.failure)
		for _, w := range revision.workers {
			if r.drain.hasTimedOut(w) {
				late = append(late, w.Name)
				if w.Stats == nil {
					silent++
				}
			}
		}
	}
	degraded := decision.False(v1alpha1.ReasonReady, "")
	if failure = cmp.Or(r.undone, failure); failure != nil {
		degraded = decision.True(failure.Reason, failure.Message)
	}
	if len(late) > 0 {
		slices.Sort(late)
		message := fmt.Sprintf("%d workers still have messages in flight after %s: %s",
			len(late), r.drain.Timeout.Duration.Duration, strings.Join(late[:min(len(late), maxListedNames)], ", "))
		if len(late) > maxListedNames {
			message += fmt.Sprintf(" and %d more", len(late)-maxListedNames)
		}
		if silent > 0 {
			message += fmt.Sprintf("; %d of them do not answer", silent)
		}
		if failure != nil {
			message += "; " + failure.Message
		}
		degraded = decision.True(v1alpha1.ReasonDrainTimeout, message)
	}
	r.setCondition(v1alpha1.ConditionDegraded, degraded)
}

// waitingReasons are the reasons of problems that can end without a change of the pool, such as a missing object or an
// exhausted quota.
var waitingReasons = []string{
	v1alpha1.ReasonQueueNotFound, v1alpha1.ReasonQueueNotReady, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonNoBroker,
	v1alpha1.ReasonConnectionFailed, v1alpha1.ReasonPending, v1alpha1.ReasonQuotaExceeded,
}

// summarize determines Ready, Reconciling and Stalled. The other conditions are set before.
func (r *report) summarize() decision.Summary {
	available := meta.FindStatusCondition(r.status.Conditions, v1alpha1.ConditionAvailable)
	isAvailable := available.Status == metav1.ConditionTrue
	idle := r.updated.failure
	stopped := cmp.Or(idle, r.stalledProgress()) // a rollout that cannot continue
	if failure := r.rollout.history.FailureMessage; failure != "" {
		stopped = &decision.Problem{Reason: v1alpha1.ReasonAnalysisFailed, Message: failure}
	}
	isSleeping := r.demand.desired == 0 && r.status.Replicas == 0
	ready, problem := metav1.ConditionFalse, r.problem
	unknown := r.unknownMessage(r.demand.desired)
	switch {
	case r.isDeleting:
		message := fmt.Sprintf("waiting for %d workers to drain", r.status.Replicas)
		switch {
		case r.status.Replicas == 0:
			message = "all workers are drained"
		case r.Stats == nil:
			message = fmt.Sprintf("%d workers are draining, but the broker cannot confirm that they have finished (%s); "+
				"to delete the WorkerPool anyway, annotate it with %s=true", r.status.Replicas, r.StatsError, AnnotationAbandon)
		}
		return decision.Summary{Ready: ready, Reason: v1alpha1.ReasonDeleting, Message: message, Progress: decision.InProgress}
	case problem != nil:
	case r.Refusal != nil:
		problem = refusalProblem(r.Refusal)
	case r.undone != nil:
		problem = r.undone
	case !r.rollout.isComplete && stopped != nil: // workers of the old revision may still serve
		ready, problem = available.Status, stopped
		switch {
		case r.status.Ready == 0 && r.demand.desired > 0:
			ready = metav1.ConditionFalse
		case isAvailable && unknown != "":
			ready = metav1.ConditionUnknown
		}
	case !isAvailable && idle != nil && idle.Reason == v1alpha1.ReasonQuotaExceeded, r.status.Ready == 0 && r.demand.desired > 0 && idle != nil:
		problem = idle
	case !isAvailable:
		return decision.Summary{Ready: ready, Reason: available.Reason, Message: available.Message, Progress: decision.InProgress}
	case unknown != "":
		return decision.Summary{Ready: metav1.ConditionUnknown, Reason: v1alpha1.ReasonMetricsStale, Message: unknown, Progress: decision.InProgress}
	case !r.rollout.isComplete && !isSleeping:
		message := meta.FindStatusCondition(r.status.Conditions, v1alpha1.ConditionProgressing).Message
		return decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonRollingOut, Message: message, Progress: decision.InProgress}
	default:
		return decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Progress: decision.Settled}
	}
	summary := decision.Summary{Ready: ready, Reason: problem.Reason, Message: problem.Message, Progress: decision.Stuck}
	if slices.Contains(waitingReasons, problem.Reason) {
		summary.Progress = decision.InProgress
	}
	return summary
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

// differsInStatsOnly reports whether two statuses differ only in stats, which are soon outdated.
func differsInStatsOnly(before, after *v1alpha1.WorkerPoolStatus) bool {
	if before.LastDecision == nil || before.LastDecision.Time == nil || after.LastDecision == nil {
		return false
	}
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, s := range []*v1alpha1.WorkerPoolStatus{a, b} {
		s.Busy, s.OpenBreakers, s.Snoozed, s.MessageCounts, s.WaitP95, s.IdleSince = nil, nil, nil, v1alpha1.MessageCounts{}, nil, nil
		s.LastDecision = &v1alpha1.ScaleDecision{Explanation: v1alpha1.Explanation{Reason: s.LastDecision.Reason}}
		for i := range s.Revisions {
			s.Revisions[i].Succeeded, s.Revisions[i].Failed, s.Revisions[i].Snoozed = nil, nil, nil
		}
		for i := range s.Conditions {
			s.Conditions[i].Message = ""
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

const (
	// idleInterval is the time between decisions about a pool without workers.
	idleInterval = 15 * time.Second
	// queueInterval is the time between decisions about a pool without workers whose Queues cannot be used. A change of
	// a Queue or a Policy triggers a decision earlier.
	queueInterval = time.Minute
	// sourceInterval is the time between reads of the source of a pool without workers, because sources send no
	// notifications.
	sourceInterval = 5 * time.Second
	// refusalInterval is the time until the operator retries an object that the API server refused.
	refusalInterval = 30 * time.Second
)

// queueReasons are the reasons of problems that end with a change of a Queue or a Policy.
var queueReasons = []string{
	v1alpha1.ReasonQueueNotFound, v1alpha1.ReasonQueueNotReady, v1alpha1.ReasonOwnedByOtherQueue, v1alpha1.ReasonQueuesOnSeveralBrokers,
}

// requeueAfter returns the time until the next decision. A pool with workers is polled, because neither brokers nor
// workers send notifications when their stats change. Without workers, the broker sends a notification of the first
// message.
func (r *report) requeueAfter() time.Duration {
	isAutoscaled := r.Pool.Spec.Autoscaling != nil
	switch {
	case r.plan.Leave:
		return 0
	case r.Refusal != nil:
		return refusalInterval
	case r.isDeleting:
		return scaling.DecisionInterval
	case r.demand.desired > 0 || slices.ContainsFunc(r.plan.revisions, (*revisionState).hasWorkers):
		// Workers start, stop, or are not proven yet.
		isChanging := !r.rollout.isComplete || r.plan.changesCluster() || r.status.Draining > 0 ||
			r.status.Ready < r.demand.desired || sumOf(r.plan.revisions, (*revisionState).servingWorkers) != r.demand.desired
		if r.problem == nil && (isAutoscaled || isChanging) {
			return scaling.DecisionInterval
		}
		return protectionInterval
	case r.problem != nil && slices.Contains(queueReasons, r.problem.Reason):
		return queueInterval
	case r.problem != nil, isAutoscaled && r.Stats == nil:
		return idleInterval
	case isAutoscaled && r.Stats.Backlog+r.Stats.InFlight+r.Stats.Delayed > 0: // no notification announces these messages
		return idleInterval
	case isAutoscaled && r.Pool.Spec.Source != nil:
		return sourceInterval
	default:
		return 0
	}
}

// Actions of events.
const (
	actionScale     = "Scale"
	actionDrain     = "Drain"
	actionRollout   = "Rollout"
	actionReadStats = "ReadMetrics"
	actionWork      = "Work"
)

// conditionEventRules are the events for conditions that change to a status, with this reason if it is set.
var conditionEventRules = []struct {
	condition               string
	status                  metav1.ConditionStatus
	conditionReason, reason string
	action                  string
}{
	{v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, "", v1alpha1.EventScalingLimited, actionScale},
	{v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonDrainTimeout, v1alpha1.EventDrainTimedOut, actionDrain},
	{v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNothingFinished, v1alpha1.EventNothingFinished, actionWork},
	{v1alpha1.ConditionProgressing, metav1.ConditionFalse, "", v1alpha1.EventRolloutPaused, actionRollout},
}

// events returns the events for the changes since the stored status.
func (r *report) events() []decision.Event {
	before := &r.Pool.Status
	var events []decision.Event
	if desired := r.demand.desired; desired != before.Desired {
		event := decision.NormalEvent(v1alpha1.EventScaled, actionScale, fmt.Sprintf("scaled from %d to %d workers", before.Desired, desired))
		if made := r.demand.decision; made != nil {
			event.Message += ": " + r.demand.summary
			if made.Reason == scaling.ReasonBudget && desired < before.Desired {
				event.Reason = v1alpha1.EventPreempted
			}
		}
		events = append(events, event)
	}
	wasStale := decision.FindReason(before.Conditions, v1alpha1.ConditionScalingActive, v1alpha1.ReasonMetricsStale)
	switch isStale := decision.FindReason(r.status.Conditions, v1alpha1.ConditionScalingActive, v1alpha1.ReasonMetricsStale); {
	case isStale != nil && wasStale == nil && len(before.Conditions) > 0:
		events = append(events, decision.WarningEvent(v1alpha1.EventMetricsLost, actionReadStats, isStale.Message))
	case wasStale != nil && isStale == nil:
		events = append(events, decision.NormalEvent(v1alpha1.EventMetricsRecovered, actionReadStats, "queue metrics can be read"))
	}
	if before.Draining == 0 && r.status.Draining > 0 {
		events = append(events, decision.NormalEvent(v1alpha1.EventDrainStarted, actionDrain, fmt.Sprintf("%d workers are draining", r.status.Draining)))
	}
	for _, rule := range conditionEventRules {
		matches := func(status *v1alpha1.WorkerPoolStatus) bool {
			c := meta.FindStatusCondition(status.Conditions, rule.condition)
			return c != nil && c.Status == rule.status && (rule.conditionReason == "" || c.Reason == rule.conditionReason) &&
				c.Reason != v1alpha1.ReasonNoProgress // such a rollout continues
		}
		if matches(r.status) && !matches(before) {
			message := meta.FindStatusCondition(r.status.Conditions, rule.condition).Message
			events = append(events, decision.WarningEvent(rule.reason, rule.action, message))
		}
	}
	if !r.rollout.isEvaluated {
		return events
	}
	name, current := r.updated.Name, r.rollout.currentRevision
	switch {
	case before.UpdatedRevision != name && !r.rollout.isComplete:
		events = append(events, decision.NormalEvent(v1alpha1.EventRolloutStarted, actionRollout,
			fmt.Sprintf("revision %s replaces revision %s", name, current)))
	case before.CurrentRevision != "" && before.CurrentRevision != current:
		events = append(events, decision.NormalEvent(v1alpha1.EventRolloutCompleted, actionRollout,
			fmt.Sprintf("revision %s replaced revision %s", name, before.CurrentRevision)))
	}
	if r.rollout.isRolledBack {
		events = append(events, decision.WarningEvent(v1alpha1.EventRolledBack, actionRollout,
			fmt.Sprintf("rolled back to revision %s: %s", current, r.rollout.history.FailureMessage)))
	}
	return events
}
