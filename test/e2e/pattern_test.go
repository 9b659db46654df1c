//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// Each pattern has the jobs per second of each period, and how many jobs in a thousand fail at first. The workers of
// a pool at its maximum can do 60 jobs of a second in a second.
var loadPatterns = []struct {
	name    string
	rates   []int
	failing int
}{
	{"bursts", []int{40, 0, 0, 0, 60, 0, 0, 0}, 100},
	{"sine", []int{4, 8, 15, 22, 26, 22, 15, 8, 4, 2}, 0},
	{"steps", []int{5, 5, 5, 20, 20, 20, 10, 10, 10}, 1000},
}

const (
	patternConcurrency, patternMaximum = 10, 6
	// A sample justifies workers for so long: the window of the scale-down rule, and the age of the stats that the
	// operator uses. It justifies them before, too, because it has the numbers of the last status.
	justifiedFor, justifiedBefore = 15 * time.Second, 5 * time.Second
)

// testPatternedLoad compares the number of workers with the one that the jobs running in them justify, while jobs
// arrive in a pattern and some fail in their first attempt. It takes about four minutes, on an otherwise idle machine.
func testPatternedLoad(t *testing.T) {
	env := newQueueEnv(t, patternNamespace)
	env.patchQueue(`{"spec":{"retry":{"backoff":"12s"}}}`)
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		pool.Spec.Concurrency = patternConcurrency
		pool.Spec.Autoscaling.MaxReplicas = patternMaximum
		pool.Spec.Autoscaling.IdleAfter = durationOfSeconds(5)
		// Without a maxStep, the number of workers follows the recommendation. The default step would hide
		// that: it keeps workers for up to 30 s by design.
		pool.Spec.Autoscaling.ScaleDown = &v1alpha1.ScaleRule{Window: durationOfSeconds(5), MaxStep: new(intstr.FromString("100%"))}
	})
	for _, pattern := range loadPatterns {
		env.testPattern(pattern.name, pattern.rates, pattern.failing)
	}
}

func (env *queueEnv) testPattern(run string, rates []int, failing int) {
	env.t.Helper()
	env.sentBatches = nil
	env.sendBatch(jobBatch{queue: "orders", run: run, rates: rates, takes: time.Second, failing: failing})
	var samples []loadSample
	var doneAt time.Time
	poll.Until(env.t, "all jobs of "+run+" to be done, and the pool to be scaled to zero", func() bool {
		sentAt := env.sendCompletionTime()
		isDone := !sentAt.IsZero() && env.isQueueEmpty("orders", sentAt)
		switch {
		case !isDone:
			doneAt = time.Time{}
		case doneAt.IsZero():
			doneAt = time.Now()
		}
		samples = append(samples, env.sampleLoad())
		return isDone && len(env.workerPods()) == 0
	})
	stoppedAfter, observed := roundedSince(doneAt), newPatternObservation(samples)
	env.t.Logf("%s: %v; zero after %v", run, observed, stoppedAfter)
	const tolerance, limit = int32(1), 15 * time.Second // idleAfter and 10 s
	if observed.tooMany > tolerance || observed.tooFew > tolerance {
		env.t.Errorf("%s: %d workers more and %d fewer than the running jobs justify, want at most %d", run, observed.tooMany, observed.tooFew, tolerance)
	}
	require.True(env.t, stoppedAfter <= limit, "%s: the pool had workers for %v after the last job", run, stoppedAfter)
	env.wantEachDoneOnce(1, run) // otherwise a busy worker was stopped
}

// loadSample is the state of the pool at a time.
type loadSample struct {
	at time.Time
	// running jobs, as counted by the workers, and jobs that wait and are due. Workers that do not answer may run
	// the unknown jobs.
	running, unknown, backlog int64
	desired                   int32
	// decision is the last one of the operator.
	decision v1alpha1.ScaleDecision
}

func (env *queueEnv) sampleLoad() loadSample {
	env.t.Helper()
	status := env.getPool().Status
	s := loadSample{at: time.Now(), desired: status.Desired}
	if status.LastDecision != nil {
		s.decision = *status.LastDecision
	}
	if ready := env.getQueue("orders").Status.Backlog; ready != nil {
		s.backlog = *ready
	}
	for _, pod := range env.workerPods() {
		switch running, err := env.runningJobs(pod.Name); {
		case err == nil:
			s.running += running
		case isPodReady(&pod):
			s.unknown += patternConcurrency
		}
	}
	return s
}

// runningJobs asks a worker for its jobs.
func (env *queueEnv) runningJobs(pod string) (int64, error) {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8081/proxy/stats", env.namespace, pod)
	raw, err := clientset.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(env.t.Context())
	if err != nil {
		return 0, err
	}
	var stats worker.Stats
	if err := json.Unmarshal(raw, &stats); err != nil {
		return 0, err
	}
	return int64(stats.InFlight), nil
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// patternObservation compares the desired numbers of workers with what the samples justify.
type patternObservation struct {
	samples []loadSample
	// peak is the largest number of workers; tooMany and tooFew are the largest differences from a justified one.
	peak, tooMany, tooFew int32
	// worst describes the sample with the most workers that are not justified.
	worst string
}

func newPatternObservation(samples []loadSample) *patternObservation {
	o := &patternObservation{samples: samples}
	for _, s := range samples {
		least, most := o.justified(s.at)
		o.peak, o.tooFew = max(o.peak, s.desired), max(o.tooFew, least-s.desired)
		if more := s.desired - most; more > o.tooMany {
			o.tooMany, o.worst = more, fmt.Sprintf(": %d desired, %d running, %d waiting; %d recommended, %s, %s",
				s.desired, s.running, s.backlog, s.decision.Recommendation, s.decision.Reason, s.decision.Message)
		}
	}
	return o
}

// justified returns the least and the most workers that the samples justify at a time. Running jobs justify as many
// workers as they occupy, and jobs that wait as many as could run them at the same time, at the default utilization
// of 80 %. One worker stays until idleAfter.
func (o *patternObservation) justified(at time.Time) (least, most int32) {
	least, most = patternMaximum, 1
	for _, s := range o.samples {
		if s.at.Before(at.Add(-justifiedFor)) || s.at.After(at.Add(justifiedBefore)) {
			continue
		}
		least = min(least, int32(math.Ceil(float64(s.running)/patternConcurrency)))
		most = max(most, min(patternMaximum, int32(math.Ceil(float64(s.running+s.unknown+s.backlog)/(0.8*patternConcurrency)))))
	}
	return least, most
}

func (o *patternObservation) String() string {
	return fmt.Sprintf("%d samples, at most %d workers, at most %d more and %d fewer than justified%s",
		len(o.samples), o.peak, o.tooMany, o.tooFew, o.worst)
}
