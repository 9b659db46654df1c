package workerpool

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

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
}

// maxStatusRevisions is the maximum number of revisions in a status.
const maxStatusRevisions = 16

func newReport(f *fleet, d *demand, r *rollout, p *plan) *report {
	s := f.Pool.Status.DeepCopy()
	s.ObservedGeneration = f.Pool.Generation
	s.Selector = k8slabels.SelectorFromSet(WorkerSelector(f.Pool.Name)).String()
	s.Desired, s.LastDecision, s.Scaling = d.desired, d.explanation.DeepCopy(), d.stored.DeepCopy()
	s.Replicas = sumOf(p.revisions, (*revisionState).liveWorkers)
	s.Ready = sumOf(p.revisions, (*revisionState).availableWorkers)
	s.Draining = sumOf(p.revisions, (*revisionState).drainingWorkers)
	s.Busy = busyWorkers(p.revisions)
	s.CurrentRevision, s.UpdatedRevision = r.currentRevision, f.updated.Name
	s.Revisions = nil
	for _, r := range p.revisions[:min(len(p.revisions), maxStatusRevisions)] {
		status := v1alpha1.RevisionStatus{
			Name: r.Name, Hash: r.Hash, Version: r.Version, Image: r.Image,
			Replicas: r.liveWorkers(), Ready: r.availableWorkers(), Draining: r.drainingWorkers(),
		}
		if r.exists {
			status.CreatedTime = new(metav1.NewTime(r.Created))
		}
		if outcomes := r.reportedOutcomes(); outcomes.total() > 0 {
			status.Succeeded, status.Failed = new(outcomes.Succeeded), new(outcomes.Failed)
		}
		s.Revisions = append(s.Revisions, status)
	}
	s.Effective = f.effective
	s.Backlog, s.InFlight = nil, nil
	if f.Stats != nil {
		s.Backlog = new(f.Stats.Backlog)
		if f.Stats.InFlightKnown {
			s.InFlight = new(f.Stats.Running)
		}
	}
	s.SLO = objectiveStatus(f.Pool.Spec.Autoscaling, f.Stats)
	report := &report{fleet: f, demand: d, rollout: r, plan: p, status: s}
	report.setConditions()
	return report
}

// busyWorkers counts the workers with running handlers; nil if a ready worker does not answer.
func busyWorkers(revisions []*revisionState) *int32 {
	count := int32(0)
	for _, r := range revisions {
		for _, w := range r.workers {
			switch {
			case w.Stats != nil && w.Stats.InFlight > 0:
				count++
			case w.Stats == nil && w.IsReady():
				return nil
			}
		}
	}
	return &count
}

// objectiveStatus compares the measured waiting time with the objective; nil without an objective.
func objectiveStatus(autoscaling *v1alpha1.Autoscaling, stats *QueueStats) *v1alpha1.ObjectiveStatus {
	if autoscaling == nil || autoscaling.SLO == nil || autoscaling.SLO.WaitP95 == nil {
		return nil
	}
	objective := &autoscaling.SLO.WaitP95.Duration
	status := &v1alpha1.ObjectiveStatus{WaitP95: objective, Met: metav1.ConditionUnknown}
	switch {
	case stats == nil:
	case stats.IsIdle():
		status.Met = metav1.ConditionTrue
	case stats.WaitP95 != nil:
		status.MeasuredP95 = &metav1.Duration{Duration: *stats.WaitP95}
		status.Met = decision.StatusOf(*stats.WaitP95 <= objective.Duration)
	case stats.OldestAge > objective.Duration:
		status.Met = metav1.ConditionFalse
	case stats.Backlog == 0:
		status.Met = metav1.ConditionTrue
	}
	return status
}

// differsInStatsOnly reports whether two statuses differ only in stats, which are soon outdated.
func differsInStatsOnly(before, after *v1alpha1.WorkerPoolStatus) bool {
	if before.LastDecision == nil || before.LastDecision.Time == nil || after.LastDecision == nil {
		return false
	}
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, s := range []*v1alpha1.WorkerPoolStatus{a, b} {
		s.Busy, s.Backlog, s.InFlight, s.Scaling = nil, nil, nil, nil
		s.LastDecision = &v1alpha1.ScaleDecision{Applied: s.LastDecision.Applied, Reason: s.LastDecision.Reason}
		if s.SLO != nil {
			s.SLO.MeasuredP95 = nil
		}
		for i := range s.Revisions {
			s.Revisions[i].Succeeded, s.Revisions[i].Failed = nil, nil
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
	case !r.plan.KeepFinalizer:
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
)

// conditionEventRules are the events for conditions that change to a status.
var conditionEventRules = []struct {
	condition         string
	status            metav1.ConditionStatus
	eventType, reason string
	action            string
	// from is the required status before; empty for any other status.
	from metav1.ConditionStatus
}{
	{v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, corev1.EventTypeWarning, v1alpha1.EventScalingLimited, actionScale, ""},
	{v1alpha1.ConditionMetricsFresh, metav1.ConditionFalse, corev1.EventTypeWarning, v1alpha1.EventMetricsLost, actionReadStats, metav1.ConditionTrue},
	{v1alpha1.ConditionDraining, metav1.ConditionTrue, corev1.EventTypeNormal, v1alpha1.EventDrainStarted, actionDrain, ""},
	{v1alpha1.ConditionDrainTimedOut, metav1.ConditionTrue, corev1.EventTypeWarning, v1alpha1.EventDrainTimedOut, actionDrain, ""},
	{v1alpha1.ConditionRolloutPaused, metav1.ConditionTrue, corev1.EventTypeWarning, v1alpha1.EventRolloutPaused, actionRollout, ""},
	{v1alpha1.ConditionMetricsFresh, metav1.ConditionTrue, corev1.EventTypeNormal, v1alpha1.EventMetricsRecovered, actionReadStats, metav1.ConditionFalse},
}

// events returns the events for the changes since the stored status.
func (r *report) events() []decision.Event {
	before := &r.Pool.Status
	var events []decision.Event
	if desired := r.demand.desired; desired != before.Desired {
		event := decision.NormalEvent(v1alpha1.EventScaled, actionScale, fmt.Sprintf("scaled from %d to %d workers", before.Desired, desired))
		if made := r.demand.decision; made != nil {
			event.Message += ": " + r.status.LastDecision.Message
			if made.Reason == scaling.ReasonBudget && desired < before.Desired {
				event.Reason = v1alpha1.EventPreempted
			}
		}
		events = append(events, event)
	}
	for _, rule := range conditionEventRules {
		was, is := meta.FindStatusCondition(before.Conditions, rule.condition), meta.FindStatusCondition(r.status.Conditions, rule.condition)
		changed := is != nil && is.Status == rule.status && (was == nil || was.Status != rule.status)
		if !changed || rule.from != "" && (was == nil || was.Status != rule.from) {
			continue
		}
		message := is.Message
		if rule.reason == v1alpha1.EventMetricsRecovered {
			message = "queue metrics can be read"
		}
		events = append(events, decision.Event{Type: rule.eventType, Reason: rule.reason, Action: rule.action, Message: message})
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
	failure := r.rollout.history.FailureMessage
	if failure != "" && r.updated.History.FailureMessage == "" && recordedFailure(before, name) == "" {
		events = append(events, decision.WarningEvent(v1alpha1.EventRolledBack, actionRollout,
			fmt.Sprintf("rolled back to revision %s: %s", current, failure)))
	}
	return events
}
