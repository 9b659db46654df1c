package sequentialjob

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

var (
	transitionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_sequentialjob_step_transition_seconds",
		Help:    "Time in seconds from observing the end of a step's Job to the creation of the next step's Job.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	stepsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_sequentialjob_steps_total",
		Help: "Number of steps that ended, by result: succeeded, failed or skipped.",
	}, []string{"result"})
	conflictsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_sequentialjob_conflicts_total",
		Help: "Number of status writes that failed because the SequentialJob had changed. Each is retried.",
	})
	eventsOmittedTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_sequentialjob_events_omitted_total",
		Help: "Number of JobStarted and JobCompleted events omitted because of the rate limit.",
	})
	activeDescription = prometheus.NewDesc("yardmaster_sequentialjob_active",
		"Number of SequentialJobs with an active step.", nil, nil)
)

func init() {
	metrics.Registry.MustRegister(transitionSeconds, stepsTotal, conflictsTotal, eventsOmittedTotal)
}

// stepResults maps the final phases of a step to the label result.
var stepResults = map[v1alpha1.StepPhase]string{
	v1alpha1.StepSucceeded: "succeeded",
	v1alpha1.StepFailed:    "failed",
	v1alpha1.StepSkipped:   "skipped",
}

// countEndedSteps counts the steps that ended between two stored statuses.
func countEndedSteps(before, after *v1alpha1.SequentialJobStatus) {
	ended := make(map[string]v1alpha1.StepPhase, len(before.Steps))
	for i := range before.Steps {
		if before.Run == after.Run {
			ended[before.Steps[i].Name] = before.Steps[i].Phase
		}
	}
	for i := range after.Steps {
		step := &after.Steps[i]
		isKept := step.Run != 0 && step.Run != after.Run
		if result, hasEnded := stepResults[step.Phase]; hasEnded && !isKept && ended[step.Name] != step.Phase {
			stepsTotal.WithLabelValues(result).Inc()
		}
	}
}

// recordStepEnd remembers when a Job was observed to end.
func (r *Reconciler) recordStepEnd(job *batchv1.Job) {
	if owner := ownerOf(job); owner != nil {
		r.stepEnds.Set(owner, r.clock.Now())
	}
}

// observeTransition observes the time since the previous step's Job ended.
func (r *Reconciler) observeTransition(sj *v1alpha1.SequentialJob) {
	if ended, found := r.stepEnds.Get(sj); found {
		transitionSeconds.Observe(r.clock.Now().Sub(ended).Seconds())
		r.stepEnds.Delete(sj)
	}
}

// activeCollector counts the SequentialJobs with an active step at each scrape.
type activeCollector struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (activeCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- activeDescription
}

// Collect implements prometheus.Collector.
func (c activeCollector) Collect(collected chan<- prometheus.Metric) {
	var list v1alpha1.SequentialJobList
	if err := c.reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		collected <- prometheus.NewInvalidMetric(activeDescription, err)
		return
	}
	active := 0
	for i := range list.Items {
		if list.Items[i].Status.State.Active > 0 {
			active++
		}
	}
	collected <- prometheus.MustNewConstMetric(activeDescription, prometheus.GaugeValue, float64(active))
}
