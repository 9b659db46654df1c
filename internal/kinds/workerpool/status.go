package workerpool

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// maxStatusRevisions is the number of revisions that a status lists at most.
const maxStatusRevisions = 16

// updateStatus writes what was observed and decided to the status.
func (e *evaluation) updateStatus() {
	s := e.status
	s.ObservedGeneration = e.observation.Pool.Generation
	s.Selector = k8slabels.SelectorFromSet(WorkerSelector(e.observation.Pool.Name)).String()
	s.Desired = e.desired
	s.Replicas = sumOf(e.revisions, (*revisionState).liveWorkers)
	s.Ready = sumOf(e.revisions, (*revisionState).availableWorkers)
	s.Draining = sumOf(e.revisions, (*revisionState).drainingWorkers)
	s.Busy = busyWorkers(e.revisions)
	s.UpdatedRevision = e.updated.Name
	s.Revisions = revisionStatuses(e.revisions)
	s.Effective = e.effective
	s.Backlog, s.InFlight = nil, nil
	if stats := e.observation.Stats; stats != nil {
		s.Backlog = new(stats.Backlog)
		if stats.InFlightKnown {
			s.InFlight = new(stats.Running)
		}
	}
	s.SLO = objectiveStatus(e.observation.Pool.Spec.Autoscaling, e.observation.Stats)
	e.setConditions()
}

// busyWorkers counts the workers with running handlers; nil if a ready worker did not answer.
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

func revisionStatuses(revisions []*revisionState) []v1alpha1.RevisionStatus {
	var statuses []v1alpha1.RevisionStatus
	for _, r := range revisions {
		if len(statuses) == maxStatusRevisions {
			break
		}
		status := v1alpha1.RevisionStatus{
			Name: r.Name, Hash: r.Hash, Version: r.Version, Image: r.Image,
			Replicas: r.liveWorkers(),
			Ready:    r.availableWorkers(),
			Draining: r.drainingWorkers(),
		}
		if r.exists {
			status.CreatedTime = new(metav1.NewTime(r.Created))
		}
		if outcomes := r.reportedOutcomes(); outcomes.total() > 0 {
			status.Succeeded, status.Failed = new(outcomes.Succeeded), new(outcomes.Failed)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// objectiveStatus compares the measured waiting time with the objective; nil without one.
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

// differsInStatsOnly reports whether two statuses differ only in stats, which are soon outdated
// anyway.
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
