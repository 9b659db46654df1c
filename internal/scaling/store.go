package scaling

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// StoreMemory is a memory as a WorkerPool's status has it: times to the second, figures to
// three places.
func StoreMemory(m Memory) *v1alpha1.ScaleMemory {
	r, s := m.Rates, m.Saturation
	stored := &v1alpha1.ScaleMemory{
		MeasuredTime: storeTime(r.MeasuredAt),
		Arrived:      r.Arrived, Finished: r.Finished, Held: r.Outstanding,
		ArrivalRate: milliQuantity(r.ArrivalRate), EarlierRate: milliQuantity(r.TrendRate), FinishRate: milliQuantity(r.FinishRate),
		Worked: milliQuantity(r.BusySeconds), Ended: milliQuantity(r.BusyFinished), ServiceSeconds: milliQuantity(r.ReportedServiceSeconds),
		Grown: storeRamp(m.ScaleUp), Shrunk: storeRamp(m.ScaleDown),
		IdleTime: storeTime(m.IdleSince), MissingTime: storeTime(m.MissingSince),
		Saturation: &v1alpha1.SaturationMemory{
			Ready: s.Ready, Time: storeTime(s.ReadySince), WokenTime: storeTime(s.ActiveSince),
			KnownReady: s.BaselineReady, KnownRate: milliQuantity(s.BaselineRate), FrozenRate: milliQuantity(s.SaturatedRate),
		},
	}
	if s == (Saturation{}) {
		stored.Saturation = nil
	}
	for _, span := range m.Recommendations {
		stored.Wants = append(stored.Wants, v1alpha1.WantSpan{
			Time: metav1.NewTime(span.Start.Truncate(time.Second)), Least: span.Min, Most: span.Max,
		})
	}
	return stored
}

// RestoreMemory is the memory that a WorkerPool's status has; an empty one if it has none.
func RestoreMemory(stored *v1alpha1.ScaleMemory) Memory {
	if stored == nil {
		return Memory{}
	}
	m := Memory{
		Rates: Rates{
			MeasuredAt: restoreTime(stored.MeasuredTime),
			Arrived:    stored.Arrived, Finished: stored.Finished, Outstanding: stored.Held,
			ArrivalRate: quantityValue(stored.ArrivalRate), TrendRate: quantityValue(stored.EarlierRate), FinishRate: quantityValue(stored.FinishRate),
			BusySeconds: quantityValue(stored.Worked), BusyFinished: quantityValue(stored.Ended), ReportedServiceSeconds: quantityValue(stored.ServiceSeconds),
		},
		ScaleUp: restoreRamp(stored.Grown), ScaleDown: restoreRamp(stored.Shrunk),
		IdleSince: restoreTime(stored.IdleTime), MissingSince: restoreTime(stored.MissingTime),
	}
	if s := stored.Saturation; s != nil {
		m.Saturation = Saturation{
			Ready: s.Ready, ReadySince: restoreTime(s.Time), ActiveSince: restoreTime(s.WokenTime),
			BaselineReady: s.KnownReady, BaselineRate: quantityValue(s.KnownRate), SaturatedRate: quantityValue(s.FrozenRate),
		}
	}
	for _, span := range stored.Wants {
		m.Recommendations = append(m.Recommendations, RecommendationSpan{Start: span.Time.Time, Min: span.Least, Max: span.Most})
	}
	return m
}

func storeTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

func restoreTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func storeRamp(r ScaleRamp) *v1alpha1.ScaleRamp {
	if r.LastChange.IsZero() {
		return nil
	}
	return &v1alpha1.ScaleRamp{From: r.StartReplicas, Time: metav1.NewTime(r.LastChange.Truncate(time.Second))}
}

func restoreRamp(r *v1alpha1.ScaleRamp) ScaleRamp {
	if r == nil {
		return ScaleRamp{}
	}
	return ScaleRamp{StartReplicas: r.From, LastChange: r.Time.Time}
}

// quantityValue is a stored one; one that cannot be is nothing.
func quantityValue(q *resource.Quantity) float64 {
	if q == nil || q.Sign() < 0 {
		return 0
	}
	return q.AsApproximateFloat64()
}
