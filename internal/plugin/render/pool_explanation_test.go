package render

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// poolWithDecision returns the pool mailers with a scaling decision.
func poolWithDecision(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	return mailersPool(append([]func(*v1alpha1.WorkerPool){func(wp *v1alpha1.WorkerPool) {
		wp.Status.LastDecision = &v1alpha1.ScaleDecision{
			Time: &metav1.Time{Time: startTime}, Recommendation: 13, Applied: 12, Reason: "MaxReplicas", Message: "13 recommended, scaled from 8 to 12: maxReplicas is 12",
			Inputs: v1alpha1.ScaleInputs{
				Replicas: 8, Backlog: new(int64(1200)), InFlight: new(int64(50)), OldestAge: &metav1.Duration{Duration: 12 * time.Second},
				ArrivalRate: new(resource.MustParse("2500m")), ServiceTime: &metav1.Duration{Duration: time.Second}, Concurrency: 10,
				PodStart: &metav1.Duration{Duration: 8 * time.Second},
			},
		}
	}}, changes...)...)
}

func TestPoolExplanationShowsEachTermOfTheFormula(t *testing.T) {
	want := []string{
		"mailers   8 workers, 6 ready",
		"  MaxReplicas: 13 recommended, scaled from 8 to 12: maxReplicas is 12 (3s ago)",
		"",
		"  λ     arrival rate         2.5 messages/s",
		"  s     service time         1s",
		"  B     backlog              1200 messages, oldest 12s",
		"  F     running              50 handlers",
		"  c     concurrency          10 messages per worker",
		"  ρ     utilization          80%",
		"  slo   p95 wait objective   30s",
		"        Pod start time       8s",
		"",
		"  to keep up with arrivals    s·λ/ρ                          3.1 handlers",
		"  to also clear the backlog   s·(λ + B/T)                    122.5 handlers, T = max(slo − oldest − Pod start, 4s) = 10s",
		"  busy now                    F                              50 handlers",
		"  workers                     largest term / c, rounded up   13",
		"",
		"  13 recommended, 12 desired.",
		"  Limits: 1 to 12 workers. The pool had 8 at the time of the decision.",
	}
	if diff := cmp.Diff(want, PoolExplanation(terminal.Style{}, poolWithDecision(), startTime.Add(3*time.Second))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestPoolExplanation(t *testing.T) {
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want []string
	}{
		"without autoscaling": {
			mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling, wp.Spec.Replicas = nil, new(int32(8)) }),
			[]string{"mailers   8 workers, 6 ready", "  Manual: spec.replicas is 8, and autoscaling is off"},
		},
		"before the first decision": {
			mailersPool(func(wp *v1alpha1.WorkerPool) { wp.Status = v1alpha1.WorkerPoolStatus{} }),
			[]string{"mailers   0 workers, 0 ready", "  no scaling decision yet"},
		},
		"without metrics": {
			poolWithDecision(func(wp *v1alpha1.WorkerPool) {
				wp.Status.LastDecision = &v1alpha1.ScaleDecision{
					Recommendation: 8, Applied: 8, Reason: "MetricsUnavailable", Message: "8 recommended: the backlog is unknown, so the number stays the same",
					Inputs: v1alpha1.ScaleInputs{Replicas: 8, Concurrency: 10},
				}
				wp.Status.Conditions = append(wp.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionMetricsFresh, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, Message: "the broker\nis unreachable",
				})
			}),
			[]string{
				"mailers   8 workers, 6 ready",
				"  MetricsUnavailable: 8 recommended: the backlog is unknown, so the number stays the same",
				"",
				"  λ     arrival rate         -",
				"  s     service time         unknown",
				"  B     backlog              - messages, oldest -",
				"  F     running              - handlers",
				"  c     concurrency          10 messages per worker",
				"  ρ     utilization          80%",
				"  slo   p95 wait objective   30s",
				"        Pod start time       unknown",
				"",
				"  The message counts are unknown, so nothing is computed.",
				"",
				"  8 recommended, 8 desired.",
				"  Limits: 1 to 12 workers. The pool had 8 at the time of the decision.",
				"  MetricsStale: the broker is unreachable",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(row.want, PoolExplanation(terminal.Style{}, row.pool, startTime)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExplainedTermsMatchTheDecision fails if the explanation and package scaling use
// different formulas.
func TestExplainedTermsMatchTheDecision(t *testing.T) {
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for title, row := range map[string]struct {
		stats             scaling.BacklogStats
		rate              float64
		podStart          time.Duration
		backlogPerReplica int32
		ofSource          bool
	}{
		"no messages":                              {},
		"steady arrivals":                          {rate: 40},
		"a backlog":                                {stats: scaling.BacklogStats{Backlog: 5000, OldestAge: second(3)}, rate: 10, podStart: second(5)},
		"a backlog older than the objective":       {stats: scaling.BacklogStats{Backlog: 5000, OldestAge: second(300)}, rate: 10, podStart: second(5)},
		"many running handlers":                    {stats: scaling.BacklogStats{Running: 77}},
		"a long service time":                      {stats: scaling.BacklogStats{Backlog: 10, ServiceTime: second(60)}, rate: 0.5},
		"by backlogPerReplica":                     {stats: scaling.BacklogStats{Backlog: 900, Running: 10}, backlogPerReplica: 7},
		"by backlogPerReplica with a service time": {stats: scaling.BacklogStats{Backlog: 900, Running: 10, ServiceTime: second(30)}, backlogPerReplica: 500},
		"by the target of a source":                {stats: scaling.BacklogStats{Backlog: 900, BacklogPerReplica: 2.5}, ofSource: true},
		"by a target of a source, service time":    {stats: scaling.BacklogStats{Backlog: 900, BacklogPerReplica: 2.5, ServiceTime: second(30)}, ofSource: true},
		"by the default of a source":               {stats: scaling.BacklogStats{Backlog: 900, Running: 3}, ofSource: true},
	} {
		t.Run(title, func(t *testing.T) {
			a := &v1alpha1.Autoscaling{MaxReplicas: 10_000}
			if row.backlogPerReplica > 0 {
				a.BacklogPerReplica = &row.backlogPerReplica
			}
			// With steady arrivals and enough workers, no growth is expected while a Pod starts.
			in := scaling.Observation{Now: startTime, Settings: scaling.NewSettings(a, 10), Replicas: 5000, Ready: 5000, PodStart: row.podStart, Stats: &row.stats}
			if row.ofSource {
				in.Settings.DefaultBacklogPerReplica = 5
			}
			in.Memory.Rates.ArrivalRate, in.Memory.Rates.TrendRate = row.rate, row.rate
			d := scaling.Decide(in)
			wp := mailersPool(func(wp *v1alpha1.WorkerPool) {
				wp.Spec.Autoscaling, wp.Status.LastDecision = a, scaling.ExplainDecision(in, d)
			})
			if got := newScalingFormula(wp).workers; got != d.Recommended {
				t.Errorf("the terms give %d workers, the decision recommends %d", got, d.Recommended)
			}
		})
	}
}
