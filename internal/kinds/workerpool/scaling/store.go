package scaling

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// StoreMemory returns a memory in the form of a WorkerPool's status. Times are truncated to
// seconds, values to three decimal places.
func StoreMemory(m Memory) *v1alpha1.ScaleMemory {
	r, s := m.Rates, m.Saturation
	stored := &v1alpha1.ScaleMemory{
		MeasuredTime: storeTime(r.MeasuredAt),
		Arrived:      r.Arrived, Finished: r.Finished, Outstanding: r.Outstanding,
		ArrivalRate: milliQuantity(r.ArrivalRate), TrendRate: milliQuantity(r.TrendRate), FinishRate: milliQuantity(r.FinishRate),
		BusySeconds: milliQuantity(r.BusySeconds), BusyFinished: milliQuantity(r.BusyFinished), ServiceSeconds: milliQuantity(r.ReportedServiceSeconds),
		ScaleUp: storeRamp(m.ScaleUp), ScaleDown: storeRamp(m.ScaleDown),
		IdleTime: storeTime(m.IdleSince), MissingTime: storeTime(m.MissingSince),
		Saturation: &v1alpha1.SaturationMemory{
			Ready: s.Ready, Time: storeTime(s.ReadySince), ActiveSince: storeTime(s.ActiveSince),
			BaselineReady: s.BaselineReady, BaselineRate: milliQuantity(s.BaselineRate), SaturatedRate: milliQuantity(s.SaturatedRate),
		},
	}
	if s == (Saturation{}) {
		stored.Saturation = nil
	}
	for _, span := range m.Recommendations {
		stored.Recommendations = append(stored.Recommendations, v1alpha1.RecommendationSpan{
			Time: metav1.NewTime(span.Start.Truncate(time.Second)), Min: span.Min, Max: span.Max,
		})
	}
	return stored
}

// RestoreMemory returns the memory in a WorkerPool's status, or an empty memory.
func RestoreMemory(stored *v1alpha1.ScaleMemory) Memory {
	if stored == nil {
		return Memory{}
	}
	m := Memory{
		Rates: Rates{
			MeasuredAt: timeOf(stored.MeasuredTime),
			Arrived:    stored.Arrived, Finished: stored.Finished, Outstanding: stored.Outstanding,
			ArrivalRate: quantityValue(stored.ArrivalRate), TrendRate: quantityValue(stored.TrendRate), FinishRate: quantityValue(stored.FinishRate),
			BusySeconds: quantityValue(stored.BusySeconds), BusyFinished: quantityValue(stored.BusyFinished), ReportedServiceSeconds: quantityValue(stored.ServiceSeconds),
		},
		ScaleUp: restoreRamp(stored.ScaleUp), ScaleDown: restoreRamp(stored.ScaleDown),
		IdleSince: timeOf(stored.IdleTime), MissingSince: timeOf(stored.MissingTime),
	}
	if s := stored.Saturation; s != nil {
		m.Saturation = Saturation{
			Ready: s.Ready, ReadySince: timeOf(s.Time), ActiveSince: timeOf(s.ActiveSince),
			BaselineReady: s.BaselineReady, BaselineRate: quantityValue(s.BaselineRate), SaturatedRate: quantityValue(s.SaturatedRate),
		}
	}
	for _, span := range stored.Recommendations {
		m.Recommendations = append(m.Recommendations, RecommendationSpan{Start: span.Time.Time, Min: span.Min, Max: span.Max})
	}
	return m
}

func storeTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

func storeRamp(r ScaleRamp) *v1alpha1.ScaleRamp {
	if r.PeriodStart.IsZero() {
		return nil
	}
	return &v1alpha1.ScaleRamp{From: r.StartReplicas, PeriodFrom: &r.PeriodReplicas, Time: metav1.NewTime(r.PeriodStart.Truncate(time.Second))}
}

// restoreRamp restores a ramp. Memory of v0.1.0 has no PeriodFrom.
func restoreRamp(r *v1alpha1.ScaleRamp) ScaleRamp {
	if r == nil {
		return ScaleRamp{}
	}
	return ScaleRamp{StartReplicas: r.From, PeriodReplicas: ptr.Deref(r.PeriodFrom, r.From), PeriodStart: r.Time.Time}
}

func quantityValue(q *resource.Quantity) float64 {
	if q == nil || q.Sign() < 0 {
		return 0
	}
	return q.AsApproximateFloat64()
}
