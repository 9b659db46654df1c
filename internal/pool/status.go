package pool

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// mostRevisions a status has room for.
const mostRevisions = 16

// summarise writes what was seen and decided into the status.
func (d *decision) summarise() {
	s := &d.status
	s.ObservedGeneration = d.in.Pool.Generation
	s.Selector = k8slabels.SelectorFromSet(Selector(d.in.Pool.Name)).String()
	s.Desired = d.desired
	s.Replicas = d.sum((*revision).live)
	s.Ready = d.available()
	s.Draining = d.sum(func(r *revision) int32 {
		return r.terminating + r.count(func(w *worker) bool { return !w.serves() })
	})
	s.Busy = d.busy()
	s.UpdatedRevision = d.updated.Name
	s.Revisions = d.revisionStatuses()
	s.Effective = d.in.Effective
	if s.Effective == nil {
		s.Effective = &v1alpha1.WorkerPoolEffective{Drain: &d.drain}
	}
	s.Backlog, s.InFlight = nil, nil
	if f := d.in.Figures; f != nil {
		s.Backlog = new(f.Backlog)
		if f.InFlightKnown {
			s.InFlight = new(f.InFlight)
		}
	}
	s.SLO = d.objective()
	d.conditions()
}

// busy is how many workers have something in flight; nil if a ready one does not say.
func (d *decision) busy() *int32 {
	number := int32(0)
	for _, r := range d.revisions {
		for _, w := range r.workers {
			switch {
			case w.Stats != nil && w.Stats.InFlight > 0:
				number++
			case w.Stats == nil && w.Ready():
				return nil
			}
		}
	}
	return &number
}

func (d *decision) revisionStatuses() []v1alpha1.RevisionStatus {
	var statuses []v1alpha1.RevisionStatus
	for _, r := range d.revisions {
		if !r.there && r.workload == nil || len(statuses) == mostRevisions {
			continue
		}
		counts := outcomes{}
		counts.add(r)
		status := v1alpha1.RevisionStatus{
			Name: r.Name, Hash: r.Hash, Version: r.Version, Image: r.Image,
			Replicas:    r.live(),
			Ready:       r.available(),
			Draining:    r.terminating + r.count(func(w *worker) bool { return !w.serves() }),
			CreatedTime: new(metav1.NewTime(r.Created)),
		}
		if counts.total() > 0 {
			status.Succeeded, status.Failed = new(counts.succeeded), new(counts.failed)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// objective tells how the pool keeps to its waiting time.
func (d *decision) objective() *v1alpha1.ObjectiveStatus {
	a := d.in.Pool.Spec.Autoscaling
	if a == nil || a.SLO == nil || a.SLO.WaitP95 == nil {
		return nil
	}
	status := &v1alpha1.ObjectiveStatus{WaitP95: &a.SLO.WaitP95.Duration, Met: metav1.ConditionUnknown}
	f := d.in.Figures
	switch {
	case f == nil:
	case f.WaitP95 != nil:
		status.MeasuredP95 = &metav1.Duration{Duration: *f.WaitP95}
		status.Met = truth(*f.WaitP95 <= a.SLO.WaitP95.Duration.Duration)
	case f.OldestAge > a.SLO.WaitP95.Duration.Duration:
		status.Met = metav1.ConditionFalse
	case f.Backlog == 0:
		status.Met = metav1.ConditionTrue
	}
	return status
}

func truth(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// deferrable tells whether a status differs from another in figures only, which are out
// of date soon anyway.
func deferrable(before, after *v1alpha1.WorkerPoolStatus) bool {
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

// least is how many workers must be ready for the pool to be available.
func (d *decision) least() int32 {
	if a := d.in.Pool.Spec.Autoscaling; a != nil {
		return min(a.MinReplicas, d.desired)
	}
	return d.desired
}
