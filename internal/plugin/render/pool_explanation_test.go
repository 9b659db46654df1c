package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

// poolWithDecision returns the pool mailers with a scaling decision.
func poolWithDecision(changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	return mailersPool(append([]func(*v1alpha1.WorkerPool){func(wp *v1alpha1.WorkerPool) {
		wp.Status.LastDecision = &v1alpha1.ScaleDecision{
			Time: &metav1.Time{Time: startTime}, Recommendation: 13, Explanation: v1alpha1.Explanation{Reason: "MaxReplicas", Message: "13 recommended, scaling from 8 to 12: maxReplicas is 12; B = 1200 waiting messages, the oldest for 12s, F = 50 running; c = 10 handlers per worker; F: 50 handlers"},
		}
	}}, changes...)...)
}

func TestPoolExplanationShowsEachTermOfTheFormula(t *testing.T) {
	want := []string{
		"mailers   8 workers, 6 ready",
		"  MaxReplicas: 13 recommended, scaling from 8 to 12: maxReplicas is 12 (3s ago)",
		"    B = 1200 waiting messages, the oldest for 12s, F = 50 running",
		"    c = 10 handlers per worker",
		"    F: 50 handlers",
		"  13 recommended, 8 desired.",
		"  Limits: 1 to 12 workers, p95 wait 30s.",
	}
	require.Equal(t, want, PoolExplanation(terminal.Style{}, poolWithDecision(), startTime.Add(3*time.Second)))
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
					Recommendation: 8, Explanation: v1alpha1.Explanation{Reason: "MetricsUnavailable", Message: "8 recommended: the backlog is unknown, so the number stays the same"},
				}
				wp.Status.Conditions = append(wp.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionScalingActive, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetricsStale, Message: "the broker\nis unreachable",
				})
			}),
			[]string{
				"mailers   8 workers, 6 ready",
				"  MetricsUnavailable: 8 recommended: the backlog is unknown, so the number stays the same",
				"  8 recommended, 8 desired.",
				"  Limits: 1 to 12 workers, p95 wait 30s.",
				"  MetricsStale: the broker is unreachable",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, PoolExplanation(terminal.Style{}, row.pool, startTime))
		})
	}
}
