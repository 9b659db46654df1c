package workerpool

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"math/bits"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of rollout.analysis.
const (
	defaultFailureIncrease = 5
	defaultMinSamples      = 20
)

// significanceLevel is the probability that a revision that is as good as the others fails the comparison by chance.
// Because the comparison is repeated, each doubling of the number of messages gets half of the remaining probability.
const significanceLevel = 0.05

// Outcomes counts the messages that workers handled.
type Outcomes struct{ Succeeded, Failed int64 }

func (o Outcomes) total() int64 { return o.Succeeded + o.Failed }

func (o Outcomes) plus(other Outcomes) Outcomes {
	return Outcomes{o.Succeeded + other.Succeeded, o.Failed + other.Failed}
}

func (o Outcomes) minus(other Outcomes) Outcomes {
	return Outcomes{o.Succeeded - other.Succeeded, o.Failed - other.Failed}
}

// failureRatio is between 0 and 1; 0 without messages.
func (o Outcomes) failureRatio() float64 {
	if o.total() == 0 {
		return 0
	}
	return float64(o.Failed) / float64(o.total())
}

// RolloutMemory is the memory of decisions about a rollout. It is not stored, and begins again after a restart of the
// operator. The workers of the updated revision are compared with all others over the same time, which begins when the
// first worker of the updated revision reports counts.
type RolloutMemory struct {
	// Revision is the name of the updated revision.
	Revision string
	// QueueEmptySince is since when no message has waited in the queues; zero if messages wait.
	QueueEmptySince time.Time
	// Start of the comparison; zero before the start.
	Start time.Time
	// Workers by Pod, including stopped workers.
	Workers map[string]WorkerOutcomes
}

// WorkerOutcomes are the counts of a worker.
type WorkerOutcomes struct {
	Updated bool
	// Before was counted before the start of the comparison, and Latest is the last report. Earlier was counted between
	// the start and a restart of the worker.
	Before, Latest, Earlier Outcomes
}

// observe returns the memory after an observation. It discards the memory of another rollout.
func (m RolloutMemory) observe(f *fleet) RolloutMemory {
	if m.Revision != f.updated.Name {
		m = RolloutMemory{Revision: f.updated.Name}
	}
	switch {
	case f.Stats == nil || f.Stats.Backlog > 0:
		m.QueueEmptySince = time.Time{}
	case m.QueueEmptySince.IsZero():
		m.QueueEmptySince = f.now
	}
	if m.Start.IsZero() && f.updated.countWorkers((*workerState).reportsCounts) > 0 {
		m.Start = f.now
	}
	if m.Start.IsZero() {
		return m
	}
	workers := map[string]WorkerOutcomes{}
	maps.Copy(workers, m.Workers) // the observation does not change
	m.Workers = workers
	for _, r := range f.revisions {
		for _, w := range r.workers {
			if w.reportsCounts() {
				m.add(w, r == f.updated)
			}
		}
	}
	return m
}

func (w *workerState) reportsCounts() bool {
	return w.Stats != nil && w.Stats.Succeeded != nil && w.Stats.Failed != nil
}

// reportedOutcomes returns the worker's counts since it started.
func (w *workerState) reportedOutcomes() Outcomes {
	if !w.reportsCounts() {
		return Outcomes{}
	}
	return Outcomes{max(*w.Stats.Succeeded, 0), max(*w.Stats.Failed, 0)}
}

func (r *revisionState) reportedOutcomes() Outcomes {
	var sum Outcomes
	for _, w := range r.workers {
		sum = sum.plus(w.reportedOutcomes())
	}
	return sum
}

func (m *RolloutMemory) add(w *workerState, updated bool) {
	reported := w.reportedOutcomes()
	known, found := m.Workers[w.Name]
	switch {
	case !found && w.Created.Before(m.Start):
		known.Before = reported
	case reported.Succeeded < known.Latest.Succeeded || reported.Failed < known.Latest.Failed: // it has restarted
		known.Earlier, known.Before = known.sinceStart(), Outcomes{}
	}
	known.Updated, known.Latest = updated, reported
	m.Workers[w.Name] = known
}

func (w WorkerOutcomes) sinceStart() Outcomes { return w.Earlier.plus(w.Latest.minus(w.Before)) }

// sumOutcomes returns the outcomes of the updated revision and of all others since the start.
func (m *RolloutMemory) sumOutcomes() (updated, others Outcomes) {
	for _, w := range m.Workers {
		if w.Updated {
			updated = updated.plus(w.sinceStart())
		} else {
			others = others.plus(w.sinceStart())
		}
	}
	return updated, others
}

// isSignificantlyWorse reports whether more messages of updated failed than chance explains: Fisher's exact test,
// one-sided. The failure ratio of updated must be higher.
func isSignificantlyWorse(updated, others Outcomes, level float64) bool {
	failed, total := updated.Failed+others.Failed, updated.total()+others.total()
	probability := 0.0
	for k := updated.Failed; k <= min(updated.total(), failed); k++ {
		term := math.Exp(logChoose(failed, k) + logChoose(total-failed, updated.total()-k) - logChoose(total, updated.total()))
		probability += term
		if probability >= level || term < probability*1e-9 { // the terms decrease
			break
		}
	}
	return probability < level
}

func logChoose(n, k int64) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	return logFactorial(n) - logFactorial(k) - logFactorial(n-k)
}

func logFactorial(n int64) float64 {
	value, _ := math.Lgamma(float64(n) + 1)
	return value
}

// analysisRules are the rules of spec.rollout.analysis with their defaults.
type analysisRules struct {
	minSamples  int64
	maxIncrease float64
}

// comparison of the failures of the updated revision with the failures of the others, since the start.
type comparison struct {
	updated, others Outcomes
	// isWorse is true if the updated revision fails more often than the analysis allows and than chance explains.
	// isAlike is true if the other revisions have failures too, and the updated revision is not worse. Both are false
	// while there are too few messages.
	isWorse, isAlike bool
}

func newAnalysisRules(spec *v1alpha1.RolloutAnalysis) analysisRules {
	analysis := ptr.Deref(spec, v1alpha1.RolloutAnalysis{})
	return analysisRules{
		minSamples:  cmp.Or(int64(analysis.MinSamples), defaultMinSamples),
		maxIncrease: float64(ptr.Deref(analysis.MaxFailureRatioIncreasePercent, defaultFailureIncrease)) / 100,
	}
}

func (r *analysisRules) compare(updated, others Outcomes) comparison {
	c := comparison{updated: updated, others: others}
	if updated.total() < r.minSamples {
		return c
	}
	isHigher := updated.failureRatio()-others.failureRatio() > r.maxIncrease
	doublings := bits.Len64(uint64(updated.total() / r.minSamples)) //nolint:gosec // at least 1
	level := significanceLevel / float64(int64(1)<<doublings)
	c.isWorse = isHigher && isSignificantlyWorse(updated, others, level)
	c.isAlike = !c.isWorse && others.total() >= r.minSamples && others.Failed > 0
	return c
}

// History is the progress of a revision's rollout. It is an annotation of the revision, so it survives a restart of the
// operator and is deleted with the revision.
type History struct {
	// CanaryStep is the index of the current canary step, and StepReached since when it has enough workers; zero if it
	// has too few.
	CanaryStep  int       `json:"step,omitempty"`
	StepReached time.Time `json:"stepReached,omitzero"`
	// ProvenWorkers is the highest number of proven workers so far, and LastProgress the time of its last increase or
	// of a reached step.
	ProvenWorkers int32     `json:"provenWorkers,omitempty"`
	LastProgress  time.Time `json:"lastProgress,omitzero"`
	// FailureMessage is why the rollout of the revision failed; empty if it did not.
	FailureMessage string `json:"failure,omitempty"`
}

// ParseHistory parses the annotation. It returns an empty history for an invalid annotation.
func ParseHistory(annotation string) History {
	var history History
	if json.Unmarshal([]byte(annotation), &history) != nil {
		return History{}
	}
	return history
}

// String returns the annotation; empty for an empty history.
func (h History) String() string {
	if h == (History{}) {
		return ""
	}
	raw, err := json.Marshal(h)
	if err != nil { // times and strings always marshal
		return ""
	}
	return string(raw)
}
