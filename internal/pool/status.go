package pool

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// maxStatusRevisions a status has room for.
const maxStatusRevisions = 16

// buildStatus writes what was seen and decided into the status.
func (d *evaluation) buildStatus() {
	s := &d.status
	s.ObservedGeneration = d.observation.Pool.Generation
	s.Selector = k8slabels.SelectorFromSet(WorkerSelector(d.observation.Pool.Name)).String()
	s.Desired = d.desired
	s.Replicas = d.sumOfRevisions((*revisionState).liveWorkers)
	s.Ready = d.availableWorkers()
	s.Draining = d.sumOfRevisions(func(r *revisionState) int32 {
		return r.terminating + r.countWorkers(func(w *workerState) bool { return !w.isServing() })
	})
	s.Busy = d.busyWorkers()
	s.UpdatedRevision = d.updated.Name
	s.Revisions = d.revisionStatuses()
	s.Effective = d.observation.Effective
	if s.Effective == nil {
		s.Effective = &v1alpha1.WorkerPoolEffective{Drain: &d.drain}
	}
	s.Backlog, s.InFlight = nil, nil
	if f := d.observation.Stats; f != nil {
		s.Backlog = new(f.Backlog)
		if f.InFlightKnown {
			s.InFlight = new(f.InFlight)
		}
	}
	s.SLO = d.objectiveStatus()
	d.setConditions()
}

// busyWorkers is how many workers have something in flight; nil if a ready one does not say.
func (d *evaluation) busyWorkers() *int32 {
	number := int32(0)
	for _, r := range d.revisions {
		for _, w := range r.workers {
			switch {
			case w.Stats != nil && w.Stats.InFlight > 0:
				number++
			case w.Stats == nil && w.IsReady():
				return nil
			}
		}
	}
	return &number
}

func (d *evaluation) revisionStatuses() []v1alpha1.RevisionStatus {
	var statuses []v1alpha1.RevisionStatus
	for _, r := range d.revisions {
		if !r.exists && r.workload == nil || len(statuses) == maxStatusRevisions {
			continue
		}
		counts := messageOutcomes{}
		counts.addRevision(r)
		status := v1alpha1.RevisionStatus{
			Name: r.Name, Hash: r.Hash, Version: r.Version, Image: r.Image,
			Replicas:    r.liveWorkers(),
			Ready:       r.availableWorkers(),
			Draining:    r.terminating + r.countWorkers(func(w *workerState) bool { return !w.isServing() }),
			CreatedTime: new(metav1.NewTime(r.Created)),
		}
		if counts.total() > 0 {
			status.Succeeded, status.Failed = new(counts.succeeded), new(counts.failed)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// objectiveStatus tells how the pool keeps to its waiting time.
func (d *evaluation) objectiveStatus() *v1alpha1.ObjectiveStatus {
	a := d.observation.Pool.Spec.Autoscaling
	if a == nil || a.SLO == nil || a.SLO.WaitP95 == nil {
		return nil
	}
	status := &v1alpha1.ObjectiveStatus{WaitP95: &a.SLO.WaitP95.Duration, Met: metav1.ConditionUnknown}
	f := d.observation.Stats
	switch {
	case f == nil:
	case f.WaitP95 != nil:
		status.MeasuredP95 = &metav1.Duration{Duration: *f.WaitP95}
		status.Met = conditionStatus(*f.WaitP95 <= a.SLO.WaitP95.Duration.Duration)
	case f.OldestAge > a.SLO.WaitP95.Duration.Duration:
		status.Met = metav1.ConditionFalse
	case f.Backlog == 0:
		status.Met = metav1.ConditionTrue
	}
	return status
}

func conditionStatus(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// differsInStatsOnly tells whether a status differs from another in figures only, which are out
// of date soon anyway.
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

// minimumAvailable is how many workers must be ready for the pool to be available.
func (d *evaluation) minimumAvailable() int32 {
	if a := d.observation.Pool.Spec.Autoscaling; a != nil {
		return min(a.MinReplicas, d.desired)
	}
	return d.desired
}
