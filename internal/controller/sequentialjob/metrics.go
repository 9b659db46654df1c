package sequentialjob

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

var (
	transitionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "yardmaster_sequentialjob_step_transition_seconds",
		Help:    "Time from seeing a step's Job end to having made the next step's Job.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	stepsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_sequentialjob_steps_total",
		Help: "Steps that ended, by result: succeeded, failed or skipped.",
	}, []string{"result"})
	conflicts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_sequentialjob_conflicts_total",
		Help: "Status writes refused because the SequentialJob had changed; each is tried again.",
	})
	eventsOmitted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "yardmaster_sequentialjob_events_omitted_total",
		Help: "JobStarted and JobCompleted events left out because there were too many at once.",
	})
	activeDescription = prometheus.NewDesc("yardmaster_sequentialjob_active",
		"SequentialJobs with a step under way.", nil, nil)
)

func init() {
	metrics.Registry.MustRegister(transitionSeconds, stepsTotal, conflicts, eventsOmitted)
}

// stepResults are the phases in which a step ends, as labels.
var stepResults = map[v1alpha1.StepPhase]string{
	v1alpha1.StepSucceeded: "succeeded",
	v1alpha1.StepFailed:    "failed",
	v1alpha1.StepSkipped:   "skipped",
}

// countSteps counts the steps that ended between two stored statuses.
func countSteps(before, after *v1alpha1.SequentialJobStatus) {
	ended := make(map[string]v1alpha1.StepPhase, len(before.Steps))
	for i := range before.Steps {
		if before.Run == after.Run {
			ended[before.Steps[i].Name] = before.Steps[i].Phase
		}
	}
	for i := range after.Steps {
		step := &after.Steps[i]
		kept := step.Run != 0 && step.Run != after.Run
		if result, over := stepResults[step.Phase]; over && !kept && ended[step.Name] != step.Phase {
			stepsTotal.WithLabelValues(result).Inc()
		}
	}
}

// transitions times the way from the end of one step to the start of the next.
type transitions struct {
	mu    sync.Mutex
	ended map[types.UID]time.Time // by the SequentialJob's UID
}

func newTransitions() *transitions { return &transitions{ended: map[types.UID]time.Time{}} }

// stepEnded notes when a Job of the SequentialJob was seen to end.
func (t *transitions) stepEnded(owner types.UID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[owner] = now
}

// stepStarted observes the time since then.
func (t *transitions) stepStarted(owner types.UID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ended, ok := t.ended[owner]; ok {
		transitionSeconds.Observe(now.Sub(ended).Seconds())
		delete(t.ended, owner)
	}
}

func (t *transitions) forget(owner types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ended, owner)
}

// activeCollector counts, when scraped, the SequentialJobs with a step under way.
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
