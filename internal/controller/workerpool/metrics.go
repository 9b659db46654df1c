package workerpool

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

var (
	scalings = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_workerpool_scalings_total",
		Help: "Changes of the wanted number of workers, by direction, up or down, and reason.",
	}, []string{"direction", "reason"})
	rollouts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_workerpool_rollouts_total",
		Help: "Rollouts that were completed.",
	})
	drainTimeouts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_workerpool_drain_timeouts_total",
		Help: "Times that a WorkerPool's workers did not finish in drain.timeout.",
	})
)

func init() { metrics.Registry.MustRegister(scalings, rollouts, drainTimeouts) }

// count counts what has changed between two stored statuses.
func count(before, after *v1alpha1.WorkerPoolStatus) {
	if before.Desired != after.Desired {
		direction, reason := "up", v1alpha1.ReasonManual
		if after.Desired < before.Desired {
			direction = "down"
		}
		if after.LastDecision != nil {
			reason = after.LastDecision.Reason
		}
		scalings.WithLabelValues(direction, reason).Inc()
	}
	if before.CurrentRevision != "" && before.CurrentRevision != after.CurrentRevision {
		rollouts.Inc()
	}
	late := v1alpha1.ConditionDrainTimedOut
	if meta.IsStatusConditionTrue(after.Conditions, late) && !meta.IsStatusConditionTrue(before.Conditions, late) {
		drainTimeouts.Inc()
	}
}
