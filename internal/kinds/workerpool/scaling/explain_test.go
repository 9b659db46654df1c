package scaling

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestDecisionIsExplainedInTheStatus(t *testing.T) {
	in := observationOf(1, &BacklogStats{Backlog: 2000, Running: 10, OldestAge: 1500 * time.Millisecond}, memoryWithRate(2.5))
	want := &v1alpha1.ScaleDecision{
		Time: new(metav1.NewTime(testTime)), Recommendation: 12, Explanation: v1alpha1.Explanation{Reason: "Demand", Message: "12 recommended, scaling from 1 to 12: it follows the recommendation; " +
			"B = 2000 waiting messages, the oldest for 1.5s, F = 10 running; " +
			"λ = 2.5 arriving messages per second, s = 1s service time, ρ = 0.8 utilization, Pod start 10s; c = 10 handlers per worker; F: 10 handlers; " +
			"to keep up with arrivals, s·λ/ρ: 3.125 handlers; to clear the backlog in T = 18.5s, s·(λ + B/T): 110.608 handlers; largest / c: 12 workers"},
	}
	require.Equal(t, want, ExplainDecision(in, Decide(in)))
}

func TestMessageExplainsTheDecision(t *testing.T) {
	for title, test := range map[string]struct {
		in   Observation
		want string
	}{
		"unavailable metrics": {
			observationOf(3, nil, Memory{}), "3 recommended, staying at 3: queue metrics are unavailable, so the number of workers does not change",
		},
		"suspended autoscaling reports what it would do": {
			observationOf(2, &BacklogStats{Backlog: 2000}, memoryWithRate(0), func(p *Settings) { p.Suspended = true }),
			"10 recommended, staying at 2: autoscaling is suspended; otherwise it would scale to 10",
		},
		"the target of a source": {
			observationOf(1, &BacklogStats{Backlog: 10, BacklogPerReplica: 2.5}, Memory{}),
			"4 recommended for 2.5 messages per worker (target of the source), scaling from 1 to 4: it follows the recommendation",
		},
		"the default of a source, limited": {
			observationOf(1, &BacklogStats{Backlog: 100}, Memory{}, func(p *Settings) { p.DefaultBacklogPerReplica, p.MaxReplicas = 10, 6 }),
			"10 recommended for 10 messages per worker (default without a service time), scaling from 1 to 6: maxReplicas is 6",
		},
		"an assumed service time": {
			observationOf(1, &BacklogStats{Backlog: 100}, Memory{}),
			"1 recommended for an assumed service time of 1s, staying at 1: it follows the recommendation",
		},
		"suspended autoscaling without a change": {
			observationOf(2, &BacklogStats{Running: 12}, memoryWithRate(10), func(p *Settings) { p.Suspended = true }),
			"2 recommended, staying at 2: autoscaling is suspended",
		},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, Summarize(test.in, Decide(test.in)))
		})
	}
}
