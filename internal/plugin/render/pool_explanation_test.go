package render

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// decided is the mailers' last decision, about these figures.
func decided(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	return mailers(append([]func(*v1alpha1.WorkerPool){func(wp *v1alpha1.WorkerPool) {
		wp.Status.LastDecision = &v1alpha1.ScaleDecision{
			Time: &metav1.Time{Time: start}, Recommendation: 13, Applied: 12, Reason: "MaxReplicas", Message: "13 wanted, from 8 to 12: maxReplicas is 12",
			Inputs: v1alpha1.ScaleInputs{
				Replicas: 8, Backlog: new(int64(1200)), InFlight: new(int64(50)), OldestAge: &metav1.Duration{Duration: 12 * time.Second},
				ArrivalRate: new(resource.MustParse("2500m")), ServiceTime: &metav1.Duration{Duration: time.Second}, Concurrency: 10,
				PodStart: &metav1.Duration{Duration: 8 * time.Second},
			},
		}
	}}, changes...)...)
}

func TestAnExplanationHasTheFormulaInFigures(t *testing.T) {
	want := []string{
		"mailers   8 workers, 6 ready",
		"  MaxReplicas: 13 wanted, from 8 to 12: maxReplicas is 12 (3s ago)",
		"",
		"  λ     arrivals            2.5 messages a second",
		"  s     time of a message   1s",
		"  B     backlog             1200 messages, the oldest for 12s",
		"  F     in flight           50 messages",
		"  c     concurrency         10 messages a worker",
		"  ρ     utilization         80%",
		"  slo   longest wait        30s for 95 of 100",
		"        start of a Pod      8s",
		"",
		"  to keep up                 s·λ/ρ                                 3.1 handlers",
		"  to clear the backlog too   s·(λ + B/T)                           122.5 handlers, T = max(slo − oldest − start, 4s) = 10s",
		"  at work now                F                                     50 handlers",
		"  workers                    the most of these, by c, rounded up   13",
		"",
		"  13 wanted, 12 applied.",
		"  Bounds: 1 to 12 workers; there were 8 when this was decided.",
	}
	if diff := cmp.Diff(want, PoolExplanation(terminal.Style{}, decided(), start.Add(3*time.Second))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestAnExplanationOf(t *testing.T) {
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want []string
	}{
		"a pool that is scaled by hand": {
			mailers(func(wp *v1alpha1.WorkerPool) { wp.Spec.Autoscaling, wp.Spec.Replicas = nil, new(int32(8)) }),
			[]string{"mailers   8 workers, 6 ready", "  Manual: spec.replicas is 8, and nothing else changes the number"},
		},
		"a pool that nothing was decided about": {
			mailers(func(wp *v1alpha1.WorkerPool) { wp.Status = v1alpha1.WorkerPoolStatus{} }),
			[]string{"mailers   0 workers, 0 ready", "  nothing has been decided about it yet"},
		},
		"a pool without figures": {
			decided(func(wp *v1alpha1.WorkerPool) {
				wp.Status.LastDecision = &v1alpha1.ScaleDecision{
					Recommendation: 8, Applied: 8, Reason: "MetricsUnavailable", Message: "8 wanted, 8 there: nobody can tell what waits, so it stays as it is",
					Inputs: v1alpha1.ScaleInputs{Replicas: 8, Concurrency: 10},
				}
				wp.Status.Conditions = append(wp.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionMetricsFresh, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, Message: "the broker\nis away",
				})
			}),
			[]string{
				"mailers   8 workers, 6 ready",
				"  MetricsUnavailable: 8 wanted, 8 there: nobody can tell what waits, so it stays as it is",
				"",
				"  λ     arrivals            -",
				"  s     time of a message   not known yet, 1s is assumed",
				"  B     backlog             - messages, the oldest for -",
				"  F     in flight           - messages",
				"  c     concurrency         10 messages a worker",
				"  ρ     utilization         80%",
				"  slo   longest wait        30s for 95 of 100",
				"        start of a Pod      not known yet",
				"",
				"  There were no figures, so nothing is computed from them.",
				"",
				"  8 wanted, 8 applied",
				"  Bounds: 1 to 12 workers; there were 8 when this was decided.",
				"  MetricsStale: the broker is away",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(row.want, PoolExplanation(terminal.Style{}, row.pool, start)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheTermsComeToWhatIsDecided keeps the explanation to the formula that it explains.
func TestTheTermsComeToWhatIsDecided(t *testing.T) {
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for title, row := range map[string]struct {
		figures  scaling.BacklogStats
		rate     float64
		podStart time.Duration
		perPod   int32
	}{
		"nothing to do":                       {},
		"it keeps up":                         {rate: 40},
		"a backlog":                           {figures: scaling.BacklogStats{Backlog: 5000, OldestAge: second(3)}, rate: 10, podStart: second(5)},
		"a backlog that is late":              {figures: scaling.BacklogStats{Backlog: 5000, OldestAge: second(300)}, rate: 10, podStart: second(5)},
		"much in flight":                      {figures: scaling.BacklogStats{InFlight: 77}},
		"a long time of a message":            {figures: scaling.BacklogStats{Backlog: 10, ServiceTime: second(60)}, rate: 0.5},
		"by backlogPerReplica":                {figures: scaling.BacklogStats{Backlog: 900, InFlight: 10}, perPod: 7},
		"by backlogPerReplica or by the time": {figures: scaling.BacklogStats{Backlog: 900, InFlight: 10, ServiceTime: second(30)}, perPod: 500},
	} {
		t.Run(title, func(t *testing.T) {
			a := &v1alpha1.Autoscaling{MaxReplicas: 10_000}
			if row.perPod > 0 {
				a.BacklogPerReplica = &row.perPod
			}
			// Steady arrivals, and workers enough: nothing grows while a Pod starts.
			in := scaling.Observation{Now: start, Settings: scaling.NewSettings(a, 10), Replicas: 5000, Ready: 5000, PodStart: row.podStart, Stats: &row.figures}
			in.Memory.Rates.ArrivalRate, in.Memory.Rates.TrendRate = row.rate, row.rate
			d := scaling.Decide(in)
			wp := mailers(func(wp *v1alpha1.WorkerPool) {
				wp.Spec.Autoscaling, wp.Status.LastDecision = a, scaling.ExplainDecision(in, d)
			})
			if got := newScalingFormula(wp).computedReplicas(); got != d.Recommended {
				t.Errorf("the terms come to %d workers, %d are wanted", got, d.Recommended)
			}
		})
	}
}
