package workerpool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Defaults of spec.rollout.
const (
	defaultMaxSurge         = "25%"
	defaultProgressDeadline = 30 * time.Minute
	defaultFailureIncrease  = 5
	defaultMinSamples       = 20
)

// rollout has the number of workers of each revision that should serve, and why.
type rollout struct {
	// isEvaluated is false for a pool that has a problem or is being deleted.
	isEvaluated bool
	// isComplete is true if only the updated revision should serve.
	isComplete bool
	// isRolledBack is true if this decision finds that the updated revision has failed.
	isRolledBack bool
	// currentRevision for the status: the last revision whose rollout was complete.
	currentRevision string
	memory          RolloutMemory
	// history of the updated revision.
	history History
	proof   proof
	// proven is the number of proven workers of the updated revision.
	proven int32
	// serving is the number of workers that should take messages, by revision; 0 for missing revisions.
	serving map[*revisionState]int32
}

// decideRollout decides how many workers of each revision should serve, of desired workers in total.
func decideRollout(f *fleet, desired int32) rollout {
	current := f.Pool.Status.CurrentRevision
	r := rollout{currentRevision: current, history: f.updated.History, isComplete: f.isDeleting, isEvaluated: !f.isDeleting && f.problem == nil}
	if !r.isEvaluated {
		return r
	}
	r.memory = f.Rollout.observe(f)
	analysis := ptr.Deref(f.rolloutSpec.Analysis, v1alpha1.RolloutAnalysis{})
	rules := analysisRules{
		minSamples:  cmp.Or(int64(analysis.MinSamples), defaultMinSamples),
		maxIncrease: float64(ptr.Deref(analysis.MaxFailureRatioIncreasePercent, defaultFailureIncrease)) / 100,
	}
	r.proof = proof{
		now: f.now, mode: f.drain.Mode, queueEmptySince: r.memory.QueueEmptySince,
		servedBefore: current == f.updated.Name, hasProvenWorker: r.history.ProvenWorkers > 0,
		minSamples: rules.minSamples, comparison: rules.compare(r.memory.sumOutcomes()),
	}
	switch proven := f.updated.countWorkers(r.proof.isProven); {
	case r.proof.servedBefore: // a rollback to a revision that served before needs no proof
		r.history.ProvenWorkers = max(1, r.history.ProvenWorkers)
	case proven > r.history.ProvenWorkers:
		r.history.ProvenWorkers, r.history.LastProgress = proven, f.now
	}
	r.proof.hasProvenWorker = r.history.ProvenWorkers > 0
	// The status is stored before the revision's history, so its failure counts even if the failed workers have stopped since.
	stored := decision.FindReason(f.Pool.Status.Conditions, v1alpha1.ConditionProgressing, v1alpha1.ReasonAnalysisFailed)
	if r.history.FailureMessage == "" && stored != nil && f.Pool.Status.UpdatedRevision == f.updated.Name {
		r.history.FailureMessage = stored.Message
	}
	isRecreate := f.rolloutSpec.Strategy == v1alpha1.RolloutRecreate // it cannot roll back, so it needs no proof
	if c := &r.proof.comparison; r.history.FailureMessage == "" && c.isWorse && !r.proof.servedBefore && !isRecreate {
		r.isRolledBack = true
		r.history.FailureMessage = fmt.Sprintf("%s: %.1f %% of its %d messages failed, compared to %.1f %% of %d before",
			v1alpha1.ReasonAnalysisFailed, 100*c.updated.failureRatio(), c.updated.total(), 100*c.others.failureRatio(), c.others.total())
	}

	r.proven = f.updated.countWorkers(r.proof.isProven)
	// stable is the revision that served before the rollout, or else another revision with workers.
	var stable *revisionState
	isReplaced := isRecreate || r.history.ProvenWorkers > 0 && r.history.FailureMessage == "" && r.proven >= desired
	for _, other := range f.revisions {
		if other == f.updated {
			continue
		}
		if other.Name == current || stable == nil && other.totalWorkers() > 0 {
			stable = other
		}
		isReplaced = isReplaced && other.totalWorkers() == 0 && (!isRecreate || other.terminating == 0)
	}
	switch {
	case stable == nil, isReplaced:
		r.isComplete, r.currentRevision = true, f.updated.Name
		// Set here, so that the history needs no second write after the revision is created.
		r.history.ProvenWorkers = max(1, r.history.ProvenWorkers)
		r.serving = map[*revisionState]int32{f.updated: desired}
	case r.history.FailureMessage != "":
		r.serving = replaceWorkers(f, &r, stable, desired, 0)
	case isRecreate: // new workers start after all others have stopped
		r.serving = map[*revisionState]int32{f.updated: min(f.updated.servingWorkers(), desired)}
	case f.rolloutSpec.Strategy == v1alpha1.RolloutCanary && !r.proof.servedBefore:
		r.history = advanceCanary(f, &r, desired)
		r.serving = replaceWorkers(f, &r, stable, desired, canaryTarget(desired, f.rolloutSpec.Steps, r.history.CanaryStep))
	default:
		r.serving = replaceWorkers(f, &r, stable, desired, desired)
	}
	return r
}

// advanceCanary records in the history when the updated revision reaches a canary step, and when the step ends: after
// its pause, or without a pause once the analysis has enough samples.
func advanceCanary(f *fleet, r *rollout, desired int32) History {
	history := r.history
	if history.CanaryStep >= len(f.rolloutSpec.Steps) {
		return history
	}
	step := &f.rolloutSpec.Steps[history.CanaryStep]
	if history.StepReached.IsZero() && desired > 0 && r.proven >= canaryTarget(desired, f.rolloutSpec.Steps, history.CanaryStep) {
		history.StepReached, history.LastProgress = f.now, f.now
	}
	isFinished := r.proof.comparison.updated.total() >= r.proof.minSamples
	if step.Pause != nil {
		isFinished = f.now.Sub(history.StepReached) >= step.Pause.Duration.Duration
	}
	if !history.StepReached.IsZero() && isFinished {
		history.CanaryStep, history.StepReached = history.CanaryStep+1, time.Time{}
	}
	return history
}

// canaryTarget is the number of workers of the updated revision in a step.
func canaryTarget(desired int32, steps []v1alpha1.RolloutStep, step int) int32 {
	if step >= len(steps) || desired == 0 {
		return desired
	}
	return min(desired, max(1, int32(math.Ceil(float64(desired)*float64(steps[step].Percent)/100))))
}

// replaceWorkers moves towards the target number of workers of the updated revision, within maxSurge and
// maxUnavailable. Until the updated revision has a proven worker, it gets only a first batch, and the old revision
// grows if more workers are needed.
func replaceWorkers(f *fleet, r *rollout, stable *revisionState, desired, target int32) map[*revisionState]int32 {
	maxSurge := countOrPercent(f.rolloutSpec.MaxSurge, defaultMaxSurge, desired, true)
	maxUnavailable := countOrPercent(f.rolloutSpec.MaxUnavailable, "0", desired, false)
	batch := target
	if !r.proof.hasProvenWorker {
		batch = min(target, max(1, maxSurge))
	}
	// Draining workers count as existing.
	room := max(0, desired+maxSurge-sumOf(f.revisions, (*revisionState).totalWorkers))
	serving, undrainable := f.updated.servingWorkers(), f.updated.countWorkers((*workerState).isUndrainable)
	updated := min(target, max(serving, min(batch, serving+max(room, undrainable))))
	room -= max(0, updated-serving-undrainable)

	old := sumOf(f.revisions, (*revisionState).servingWorkers) - serving
	sufficient := max(desired-target, desired-maxUnavailable-min(r.proven, target))
	minimum := desired - target
	if !r.proof.hasProvenWorker {
		minimum = sufficient
	}
	switch {
	case old > sufficient:
		old = sufficient
	case old < minimum:
		old = min(minimum, old+max(room, stable.countWorkers((*workerState).isUndrainable)))
	}

	targets := map[*revisionState]int32{f.updated: updated}
	others := int32(0)
	for _, other := range f.revisions {
		if other == f.updated || other == stable {
			continue
		}
		// Other revisions serve only while the stable revision has too few workers.
		targets[other] = min(other.servingWorkers(), max(0, old-stable.servingWorkers()-others))
		others += targets[other]
	}
	targets[stable] = old - others
	return targets
}

// countOrPercent returns a number, or a percentage of the total, rounded up or down; 0 for an invalid value.
func countOrPercent(value *intstr.IntOrString, fallback string, total int32, roundUp bool) int32 {
	count, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.Parse(fallback)), int(total), roundUp)
	if err != nil {
		return 0
	}
	return int32(min(max(count, 0), math.MaxInt32))
}

// minProvenIdleTime is how long a worker must be attached while no message waits before it counts as proven.
const minProvenIdleTime = 30 * time.Second

// proof has the criteria by which workers of the updated revision are proven to work.
type proof struct {
	now  time.Time
	mode v1alpha1.DrainMode
	// queueEmptySince is since when no message has waited in the queues; zero if messages wait.
	queueEmptySince time.Time
	// servedBefore is true if the updated revision is the current revision, as after a rollback.
	servedBefore bool
	// hasProvenWorker is true if the updated revision has, or had, a proven worker.
	hasProvenWorker bool
	minSamples      int64
	// comparison of the failures of the updated revision with the failures of the others.
	comparison comparison
}

// isProven reports whether a worker of the updated revision is proven to work. It must be ready, and so attached to
// each queue. Until the revision has a proven worker, it must also have handled a message successfully, or have been
// idle for a while with no message waiting and no failure. Later workers must only not have failures without successes. A worker that gives
// messages back and has finished none is never proven: it may be what keeps the queue empty.
//
// A worker without stats is not proven, except in drain mode Signal, where workers need no admin API.
func (p *proof) isProven(w *workerState) bool {
	switch {
	case !w.isServing() || !w.IsReady():
		return false
	case p.servedBefore:
		return true
	case w.Stats == nil:
		return p.mode == v1alpha1.DrainSignal && p.now.Sub(w.ReadySince) >= minProvenIdleTime
	}
	if w.givesAllBack() {
		return false
	}
	// No message has waited for a while since the worker was ready.
	idleSince := p.queueEmptySince
	if !idleSince.IsZero() && w.ReadySince.After(idleSince) {
		idleSince = w.ReadySince
	}
	isIdle := !idleSince.IsZero() && p.now.Sub(idleSince) >= minProvenIdleTime
	succeeded, failed := ptr.Deref(w.Stats.Succeeded, 0), ptr.Deref(w.Stats.Failed, 0)
	switch {
	case failed > 0 && succeeded == 0:
		return p.comparison.isAlike
	case p.comparison.updated.Failed > 0 && p.comparison.updated.total() < p.minSamples && !isIdle:
		return false // too few messages to decide, and more wait
	case succeeded > 0, p.hasProvenWorker:
		return true
	case w.Stats.Succeeded == nil && w.Stats.InFlight > 0: // a worker without counters that takes messages
		return true
	}
	return w.Stats.InFlight+w.Stats.Prefetched == 0 && isIdle
}

// significanceLevel is the probability that a revision that is as good as the others fails the comparison by chance.
// Because the comparison is repeated, each doubling of the number of messages gets half of the remaining probability.
const significanceLevel = 0.05

// Outcomes counts the messages that workers handled.
type Outcomes struct{ Succeeded, Failed int64 }

func (o Outcomes) total() int64 { return o.Succeeded + o.Failed }

func (o Outcomes) plus(other Outcomes) Outcomes {
	return Outcomes{o.Succeeded + other.Succeeded, o.Failed + other.Failed}
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
	// QueueEmptySince is since when no message has waited in the queues and no attempt has ended; zero if messages wait.
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
	case f.Stats == nil || f.Stats.Backlog > 0 || f.work.HasMoved:
		m.QueueEmptySince = time.Time{}
	case m.QueueEmptySince.IsZero():
		m.QueueEmptySince = f.now
	}
	reports := func(w *workerState) bool {
		_, ok := w.reportedOutcomes()
		return ok
	}
	if m.Start.IsZero() && f.updated.countWorkers(reports) > 0 {
		m.Start = f.now
	}
	if m.Start.IsZero() {
		return m
	}
	workers := map[string]WorkerOutcomes{}
	maps.Copy(workers, m.Workers) // the observation does not change
	for _, r := range f.revisions {
		for _, w := range r.workers {
			reported, ok := w.reportedOutcomes()
			if !ok {
				continue
			}
			known, found := workers[w.Name]
			switch {
			case !found && w.Created.Before(m.Start):
				known.Before = reported
			case reported.Succeeded < known.Latest.Succeeded || reported.Failed < known.Latest.Failed: // it has restarted
				known.Earlier, known.Before = known.sinceStart(), Outcomes{}
			}
			known.Updated, known.Latest = r == f.updated, reported
			workers[w.Name] = known
		}
	}
	m.Workers = workers
	return m
}

// reportedOutcomes returns the worker's counts since it started, and whether it reports them.
func (w *workerState) reportedOutcomes() (outcomes Outcomes, ok bool) {
	if w.Stats == nil || w.Stats.Succeeded == nil || w.Stats.Failed == nil {
		return Outcomes{}, false
	}
	return Outcomes{max(*w.Stats.Succeeded, 0), max(*w.Stats.Failed, 0)}, true
}

func (w WorkerOutcomes) sinceStart() Outcomes {
	sum := w.Earlier.plus(w.Latest)
	return Outcomes{sum.Succeeded - w.Before.Succeeded, sum.Failed - w.Before.Failed}
}

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

// logChoose returns the logarithm of a binomial coefficient.
func logChoose(n, k int64) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	all, _ := math.Lgamma(float64(n) + 1)
	chosen, _ := math.Lgamma(float64(k) + 1)
	others, _ := math.Lgamma(float64(n-k) + 1)
	return all - chosen - others
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

func (r *analysisRules) compare(updated, others Outcomes) comparison {
	c := comparison{updated: updated, others: others}
	if updated.total() < r.minSamples {
		return c
	}
	doublings := bits.Len64(uint64(updated.total() / r.minSamples)) //nolint:gosec // at least 1
	level := significanceLevel / float64(int64(1)<<doublings)
	// Fisher's exact test, one-sided: the probability that chance alone makes as many messages of updated fail.
	failed, total, probability := updated.Failed+others.Failed, updated.total()+others.total(), 0.0
	for k := updated.Failed; k <= min(updated.total(), failed); k++ {
		term := math.Exp(logChoose(failed, k) + logChoose(total-failed, updated.total()-k) - logChoose(total, updated.total()))
		probability += term
		if probability >= level || term < probability*1e-9 { // the terms decrease
			break
		}
	}
	c.isWorse = updated.failureRatio()-others.failureRatio() > r.maxIncrease && probability < level
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
