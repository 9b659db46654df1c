package scaling

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Store is a memory as a WorkerPool's status has it: times to the second, figures to
// three places.
func Store(m Memory) *v1alpha1.ScaleMemory {
	r, s := m.Rates, m.Saturation
	stored := &v1alpha1.ScaleMemory{
		MeasuredTime: storeTime(r.At),
		Arrived:      r.Arrived, Finished: r.Finished, Held: r.Held,
		ArrivalRate: milli(r.Arriving), EarlierRate: milli(r.Earlier), FinishRate: milli(r.Finishing),
		Worked: milli(r.Worked), Ended: milli(r.Ended), ServiceSeconds: milli(r.Service),
		Grown: storeRamp(m.Up), Shrunk: storeRamp(m.Down),
		IdleTime: storeTime(m.IdleSince), MissingTime: storeTime(m.MissingSince),
		Saturation: &v1alpha1.SaturationMemory{
			Ready: s.Ready, Time: storeTime(s.Since), WokenTime: storeTime(s.Woken),
			KnownReady: s.KnownReady, KnownRate: milli(s.Known), FrozenRate: milli(s.Frozen),
		},
	}
	if s == (Saturation{}) {
		stored.Saturation = nil
	}
	for _, span := range m.Wants {
		stored.Wants = append(stored.Wants, v1alpha1.WantSpan{
			Time: metav1.NewTime(span.Start.Truncate(time.Second)), Least: span.Least, Most: span.Most,
		})
	}
	return stored
}

// Recall is the memory that a WorkerPool's status has; an empty one if it has none.
func Recall(stored *v1alpha1.ScaleMemory) Memory {
	if stored == nil {
		return Memory{}
	}
	m := Memory{
		Rates: Rates{
			At:      recallTime(stored.MeasuredTime),
			Arrived: stored.Arrived, Finished: stored.Finished, Held: stored.Held,
			Arriving: figure(stored.ArrivalRate), Earlier: figure(stored.EarlierRate), Finishing: figure(stored.FinishRate),
			Worked: figure(stored.Worked), Ended: figure(stored.Ended), Service: figure(stored.ServiceSeconds),
		},
		Up: recallRamp(stored.Grown), Down: recallRamp(stored.Shrunk),
		IdleSince: recallTime(stored.IdleTime), MissingSince: recallTime(stored.MissingTime),
	}
	if s := stored.Saturation; s != nil {
		m.Saturation = Saturation{
			Ready: s.Ready, Since: recallTime(s.Time), Woken: recallTime(s.WokenTime),
			KnownReady: s.KnownReady, Known: figure(s.KnownRate), Frozen: figure(s.FrozenRate),
		}
	}
	for _, span := range stored.Wants {
		m.Wants = append(m.Wants, Span{Start: span.Time.Time, Least: span.Least, Most: span.Most})
	}
	return m
}

func storeTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

func recallTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func storeRamp(r Ramp) *v1alpha1.ScaleRamp {
	if r.Last.IsZero() {
		return nil
	}
	return &v1alpha1.ScaleRamp{From: r.From, Time: metav1.NewTime(r.Last.Truncate(time.Second))}
}

func recallRamp(r *v1alpha1.ScaleRamp) Ramp {
	if r == nil {
		return Ramp{}
	}
	return Ramp{From: r.From, Last: r.Time.Time}
}

// figure is a stored one; one that cannot be is nothing.
func figure(q *resource.Quantity) float64 {
	if q == nil || q.Sign() < 0 {
		return 0
	}
	return q.AsApproximateFloat64()
}
