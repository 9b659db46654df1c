package queue

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Observation is what was seen of a Queue in one pass.
type Observation struct {
	Effective v1alpha1.QueueEffective
	// Engine of the broker; empty, if there is none.
	Engine v1alpha1.Engine
	// Unreachable is why the broker could not be asked; nil if it could.
	Unreachable *Trouble
	// Outcome of making the queue as it is to be; nil, if that has failed or was not tried.
	Outcome *broker.EnsureResult
	// Failure of that, other than Unreachable.
	Failure error
	// Figures just read; nil, if they could not be.
	Figures *broker.QueueStats
	// Memory of earlier passes.
	Memory Memory
	// Blocked is what keeps a deleted Queue; nil: nothing does.
	Blocked *Trouble
}

// Trouble is why something is not so.
type Trouble struct {
	// Reason for a condition.
	Reason string
	// Message for people.
	Message string
}

// Plan is what follows from an Observation.
type Plan struct {
	Status v1alpha1.QueueStatus
	Memory Memory
	// Minor: nothing but figures differs from the status there was, so the write may wait
	// for others.
	Minor bool
}

// Decide what the status of a Queue says after a pass.
func Decide(q *v1alpha1.Queue, o *Observation) Plan {
	p := Plan{Memory: o.Memory}
	before := &q.Status
	s := before.DeepCopy()
	s.ObservedGeneration = q.Generation
	s.Name, s.Engine = BrokerQueueName(q), o.Engine
	s.Effective = o.Effective.DeepCopy()
	switch {
	case o.Outcome != nil:
		s.Enforcement = enforcement(q, &o.Effective, o.Outcome.Enforcement)
	case o.Engine != before.Engine:
		s.Enforcement = nil
	}
	if o.Figures != nil {
		p.Memory = o.Memory.learn(o.Figures)
	} else {
		p.Memory = Memory{}
	}
	setFigures(s, p.Memory)
	setConditions(q, s, o, p.Memory)
	settle(before, s)
	p.Status = *s
	p.Minor = !equality.Semantic.DeepEqual(before, s) && minor(before, s)
	return p
}

// setFigures sets those that are known, and clears those that are not.
func setFigures(s *v1alpha1.QueueStatus, m Memory) {
	s.Ready, s.InFlight, s.Delayed, s.Dead = nil, nil, nil, nil
	s.OldestTime, s.Wait, s.ArrivalRate, s.ServiceRate, s.MeasuredTime = nil, nil, nil, nil, nil
	f := m.Last
	if f == nil {
		return
	}
	s.Ready, s.InFlight, s.Delayed, s.Dead = &f.Ready, &f.InFlight, &f.Delayed, &f.DeadLetters
	if !f.OldestReadyTime.IsZero() {
		s.OldestTime = new(metav1.NewTime(f.OldestReadyTime).Rfc3339Copy())
	}
	s.Wait = m.Waits.quantiles()
	if m.Rates.Seconds > 0 {
		s.ArrivalRate, s.ServiceRate = quantity(m.Rates.Arriving()), quantity(m.Rates.Finishing())
	}
	s.MeasuredTime = new(metav1.NewTime(f.MeasuredTime).Rfc3339Copy())
}

// settle keeps the time of figures that have not changed: otherwise a queue in which
// nothing happens would be written again and again.
func settle(before, after *v1alpha1.QueueStatus) {
	if before.MeasuredTime == nil || after.MeasuredTime == nil {
		return
	}
	measured := after.MeasuredTime
	after.MeasuredTime = before.MeasuredTime
	if !equality.Semantic.DeepEqual(figuresOf(before), figuresOf(after)) {
		after.MeasuredTime = measured
	}
}

// figuresOf is the status without all that is not a figure.
func figuresOf(s *v1alpha1.QueueStatus) *v1alpha1.QueueStatus {
	return &v1alpha1.QueueStatus{
		Ready: s.Ready, InFlight: s.InFlight, Delayed: s.Delayed, Dead: s.Dead, OldestTime: s.OldestTime,
		Wait: s.Wait, ArrivalRate: s.ArrivalRate, ServiceRate: s.ServiceRate, MeasuredTime: s.MeasuredTime,
	}
}

// minor tells that two statuses differ in figures alone. What was never measured, or no
// more is, is no minor difference.
func minor(before, after *v1alpha1.QueueStatus) bool {
	if (before.MeasuredTime == nil) != (after.MeasuredTime == nil) {
		return false
	}
	a, b := *before, *after
	for _, s := range []*v1alpha1.QueueStatus{&a, &b} {
		s.Ready, s.InFlight, s.Delayed, s.Dead = nil, nil, nil, nil
		s.OldestTime, s.Wait, s.ArrivalRate, s.ServiceRate, s.MeasuredTime = nil, nil, nil, nil, nil
	}
	a.Conditions, b.Conditions = verdicts(a.Conditions), verdicts(b.Conditions)
	return equality.Semantic.DeepEqual(a, b)
}

// verdicts are conditions without what goes with figures: the words of some.
func verdicts(conditions []metav1.Condition) []metav1.Condition {
	var all []metav1.Condition
	for _, c := range conditions {
		if c.Reason == v1alpha1.ReasonDeadLetters || c.Reason == v1alpha1.ReasonRateBelowArrivals {
			c.Message = ""
		}
		all = append(all, c)
	}
	return all
}

// enforcement tells, of each field in use, who keeps to it.
func enforcement(q *v1alpha1.Queue, e *v1alpha1.QueueEffective, by broker.Capabilities) map[string]v1alpha1.Enforcement {
	all := map[string]v1alpha1.Enforcement{}
	for field, used := range fieldsInUse(q, e) {
		if is, known := by[field]; used && known {
			all[string(field)] = enforcers[is.By]
		}
	}
	return all
}

var enforcers = map[broker.Enforcer]v1alpha1.Enforcement{
	broker.EnforcedByBroker: v1alpha1.EnforcedByBroker,
	broker.EnforcedByWorker: v1alpha1.EnforcedByWorkers,
	broker.NotEnforced:      v1alpha1.EnforcementUnsupported,
}

// fieldsInUse has all fields that engines differ in, and tells which of them a Queue asks
// for.
func fieldsInUse(q *v1alpha1.Queue, e *v1alpha1.QueueEffective) map[broker.QueueField]bool {
	return map[broker.QueueField]bool{
		broker.FieldLease:       true,
		broker.FieldRetry:       true,
		broker.FieldDeadLetter:  e.DeadLetter == nil || e.DeadLetter.Enabled == nil || *e.DeadLetter.Enabled,
		broker.FieldPriorities:  len(q.Spec.Priorities) > 1,
		broker.FieldMaxInFlight: q.Spec.MaxInFlight != nil,
		broker.FieldMaxBacklog:  q.Spec.MaxBacklog != nil,
		broker.FieldRateLimit:   e.RateLimit != nil,
		broker.FieldMaxAge:      q.Spec.Retention != nil,
		broker.FieldPaused:      true,
		broker.FieldDelayed:     true,
	}
}

// threshold from which dead letters are told of.
func threshold(e *v1alpha1.QueueEffective) int64 {
	if e.DeadLetter == nil || e.DeadLetter.AlertThreshold == nil {
		return 1
	}
	return cmp.Or(*e.DeadLetter.AlertThreshold, 1)
}
