package scaling

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Memory is the part of earlier decisions that a decision needs.
type Memory struct {
	Rates Rates
	// Recommendations of the last decisions.
	Recommendations Recommendations
	// ScaleUp and ScaleDown are changes in progress.
	ScaleUp, ScaleDown ScaleRamp
	// IdleSince is since when no messages exist; zero if messages exist.
	IdleSince time.Time
	// MissingSince is since when stats are unavailable; zero if they are available.
	MissingSince time.Time
	// ResumedAt is when decisions about a pool with workers began without a memory.
	ResumedAt time.Time
	// PodStart is the last known time from the creation of a Pod until it is ready.
	PodStart   time.Duration
	Saturation Saturation
}

// ScaleRamp is a change in one direction that takes more than one decision.
type ScaleRamp struct {
	// StartReplicas is the number of workers at the start of the ramp, PeriodReplicas at the start of the last period.
	StartReplicas, PeriodReplicas int32
	// PeriodStart is the time of the first change in the last period.
	PeriodStart time.Time
}

const (
	// defaultServiceTime is the assumed service time until it is known.
	defaultServiceTime = time.Second
	rateTimeConstant   = 10 * time.Second
	// trendTimeConstant is the time constant of the slower average that shows whether the arrival
	// rate grows.
	trendTimeConstant = 40 * time.Second
	// settledRates is the time after which rates that began at zero are near the real rates.
	settledRates = 3 * rateTimeConstant
	// maxBurstFactor limits how much a single measurement can raise the arrival rate.
	maxBurstFactor = 4
	// serviceTimeConstant is the time constant of the service time. Only time in which handlers run counts.
	serviceTimeConstant = 2 * time.Minute
	// minFinishedSamples is the number of finished messages from which the service time is known.
	minFinishedSamples = 5
)

// Rates are smoothed arrival and finish rates.
type Rates struct {
	// MeasuredAt is when the counters were read; zero if unknown.
	MeasuredAt        time.Time
	Arrived, Finished *int64
	// Outstanding is the number of messages waiting and running.
	Outstanding int64
	// ArrivalRate and FinishRate in messages per second. TrendRate is the arrival rate smoothed
	// over a longer time, LatestRate the arrival rate since the last measurement.
	ArrivalRate, FinishRate, TrendRate, LatestRate float64
	// BusySeconds is the time that handlers ran, BusyFinished the number of messages
	// finished in that time. Both decay.
	BusySeconds, BusyFinished float64
	// ReportedServiceSeconds is the last service time that workers reported, in seconds; 0 if they report none.
	ReportedServiceSeconds float64
}

// updateRates adds a measurement. A sudden burst counts as backlog instead of arrivals, so a measurement counts only up
// to maxBurstFactor times the sum of the known rate and the rate that one worker can handle.
func (r *Rates) updateRates(in Observation) {
	f := in.Stats
	if f.ServiceTime > 0 {
		r.ReportedServiceSeconds = f.ServiceTime.Seconds()
	}
	held := f.Backlog + f.Running
	elapsed := in.Now.Sub(r.MeasuredAt).Seconds()
	if !r.MeasuredAt.IsZero() && elapsed > 0 {
		finished, known := counterIncrease(f.Finished, r.Finished)
		if known {
			r.FinishRate = exponentialAverage(r.FinishRate, float64(finished)/elapsed, elapsed, rateTimeConstant)
		}
		if known && (f.Running > 0 || finished > 0) { // the service time does not decay while no handler runs
			kept := math.Exp(-elapsed / serviceTimeConstant.Seconds())
			r.BusySeconds, r.BusyFinished = r.BusySeconds*kept+float64(f.Running)*elapsed, r.BusyFinished*kept+float64(finished)
		}
		arrived := max(0, held-r.Outstanding+finished)
		if f.Arrived != nil {
			arrived, known = counterIncrease(f.Arrived, r.Arrived)
		}
		if known {
			burst := maxBurstFactor * (r.ArrivalRate + float64(in.Settings.Concurrency)/r.serviceTimeOrDefault().Seconds())
			r.LatestRate = min(float64(arrived)/elapsed, burst)
			r.ArrivalRate = exponentialAverage(r.ArrivalRate, r.LatestRate, elapsed, rateTimeConstant)
			r.TrendRate = exponentialAverage(r.TrendRate, r.LatestRate, elapsed, trendTimeConstant)
		}
	}
	r.MeasuredAt, r.Outstanding = in.Now, held
	r.Arrived, r.Finished = f.Arrived, f.Finished
}

// counterIncrease returns the increase of a counter. It is unknown if the counter was reset.
func counterIncrease(now, before *int64) (int64, bool) {
	if now == nil || before == nil || *now < *before {
		return 0, false
	}
	return *now - *before, true
}

// forecastRate returns the arrival rate after the given time if it continues to grow. It predicts no decrease, and at
// most 25 % growth, because the growth may be due to chance.
func (r *Rates) forecastRate(lead time.Duration) float64 {
	growth := max(0, r.ArrivalRate-r.TrendRate) / (trendTimeConstant - rateTimeConstant).Seconds()
	return r.ArrivalRate + min(growth*(rateTimeConstant+lead).Seconds(), r.ArrivalRate/4)
}

func exponentialAverage(average, seen, seconds float64, memory time.Duration) float64 {
	return average + (seen-average)*(1-math.Exp(-seconds/memory.Seconds()))
}

// serviceTime returns the service time of a message; 0 if unknown. If workers do not report it, it is, by Little's law,
// the time that handlers ran divided by the number of finished messages, and includes all attempts.
func (r *Rates) serviceTime() time.Duration {
	seconds := r.ReportedServiceSeconds
	if seconds == 0 && r.BusyFinished >= minFinishedSamples {
		seconds = r.BusySeconds / r.BusyFinished
	}
	return time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
}

func (r *Rates) serviceTimeOrDefault() time.Duration {
	return cmp.Or(r.serviceTime(), defaultServiceTime)
}

// spansPerWindow is the number of spans into which the longer window is divided. A window becomes longer by at most one
// span.
const spansPerWindow = 8

// RecommendationSpan is the range of recommendations in a part of a window.
type RecommendationSpan struct {
	Start    time.Time
	Min, Max int32
}

// Recommendations are recent recommendations, oldest first.
type Recommendations []RecommendationSpan

// addRecommendation adds a recommendation to the last span or starts a new span, and drops spans older than the windows.
func (w *Recommendations) addRecommendation(in Observation, recommended int32) {
	window := max(in.Settings.ScaleUp.Window, in.Settings.ScaleDown.Window)
	spans := slices.DeleteFunc(*w, func(s RecommendationSpan) bool { return s.Start.After(in.Now) })
	if last := len(spans) - 1; last >= 0 && in.Now.Sub(spans[last].Start) < window/spansPerWindow {
		spans[last].Min, spans[last].Max = min(spans[last].Min, recommended), max(spans[last].Max, recommended)
	} else {
		spans = append(spans, RecommendationSpan{Start: in.Now, Min: recommended, Max: recommended})
	}
	spans = spans.since(in.Now.Add(-window))
	*w = spans[max(0, len(spans)-spansPerWindow-2):]
}

// since returns the spans that overlap the time since the beginning of a window. A span ends where the next span begins.
func (w Recommendations) since(begin time.Time) Recommendations {
	for len(w) > 1 && !w[1].Start.After(begin) {
		w = w[1:]
	}
	return w
}

const (
	// growthFactor is the growth of the number of workers from which throughput is expected to grow.
	growthFactor = 2
	// requiredGain is the part of the workers' growth by which throughput must grow.
	requiredGain = 0.25
	// settlingTime is how long workers must be ready before their throughput counts, in addition to the time for
	// settlingMessages.
	settlingTime = 10 * time.Second
	// minSaturatedRate is the smallest throughput that differs from zero.
	minSaturatedRate = 0.001
	// settlingMessages is the number of messages that each worker must have had time to handle.
	settlingMessages = 3
)

// Saturation detects whether more workers increase throughput. If a dependency of all workers, such as a database, is
// at its limit, more workers only make each message take longer, which seems to call for even more workers. So after
// scaling up, throughput must grow before the pool scales up again. If it does not, the pool stops scaling up until
// throughput grows or the backlog is empty.
type Saturation struct {
	// BaselineReady workers had the throughput BaselineRate, in messages per second, before the
	// last scale-up.
	BaselineReady int32
	BaselineRate  float64
	// Ready is the number of ready workers since ReadySince. ActiveSince is when the pool last got its first ready
	// worker.
	Ready                   int32
	ReadySince, ActiveSince time.Time
	// SaturatedRate is the throughput at which scaling up was found useless; 0 if it was not.
	SaturatedRate float64
}

// applySaturation prevents a useless scale-up. It uses the state before the current stats, so that a larger backlog
// never leads to fewer workers.
func (n *replicaTarget) applySaturation(in Observation, before Saturation, rates *Rates) {
	if in.Ready == 0 || n.value <= in.Replicas || in.Replicas < n.lower || in.Stats.Finished == nil {
		return
	}
	hasGrown, finishesMore := before.growth(in, rates)
	// The first workers have just started, and their throughput is still low.
	could := float64(in.Ready) * float64(in.Settings.Concurrency) / rates.serviceTimeOrDefault().Seconds()
	isWarmingUp := before.BaselineReady == 0 && isTooRecent(in, before.ActiveSince, rates) && rates.FinishRate < requiredGain*could
	switch {
	case before.SaturatedRate > 0:
		n.value, n.reason = in.Replicas, ReasonThroughputSaturated
	case hasGrown && !finishesMore, isWarmingUp:
		n.value, n.reason = in.Replicas, ReasonThroughputUnproven
	}
}

// growth reports whether the number of ready workers has grown enough to expect more throughput, and whether throughput
// has grown with it.
func (s *Saturation) growth(in Observation, rates *Rates) (hasGrown, finishesMore bool) {
	factor := float64(in.Ready) / float64(max(s.BaselineReady, 1))
	return s.BaselineReady > 0 && factor >= growthFactor, rates.FinishRate >= s.BaselineRate*(1+requiredGain*(factor-1))
}

// isTooRecent reports whether workers that became ready at a time cannot have handled enough messages.
func isTooRecent(in Observation, since time.Time, rates *Rates) bool {
	return !since.IsZero() && in.Now.Sub(since) < settlingTime+settlingMessages*rates.serviceTimeOrDefault()
}

// updateSaturation compares the throughput with the baseline. Without messages, it discards everything except the number
// of ready workers.
func (s *Saturation) updateSaturation(in Observation, rates *Rates, grows bool) {
	if in.Ready > 0 && s.Ready == 0 && !s.ReadySince.IsZero() {
		s.ActiveSince = in.Now
	}
	if s.Ready != in.Ready || s.ReadySince.IsZero() || s.ReadySince.After(in.Now) {
		s.Ready, s.ReadySince = in.Ready, in.Now
	}
	if in.Stats.Finished == nil || in.Stats.Backlog == 0 {
		s.BaselineReady, s.BaselineRate, s.SaturatedRate = 0, 0, 0
	}
	if in.Stats.Finished == nil || in.Ready == 0 {
		return
	}
	hasGrown, finishesMore := s.growth(in, rates)
	settled := !isTooRecent(in, s.ReadySince, rates)
	busy := roundUpReplicas(float64(in.Stats.Running) / float64(in.Settings.Concurrency))
	atLimit := settled && in.Ready == in.Replicas && busy >= in.Ready
	switch {
	case s.SaturatedRate > 0:
		if rates.FinishRate > s.SaturatedRate*(1+requiredGain) {
			s.BaselineReady, s.BaselineRate, s.SaturatedRate = 0, 0, 0
		}
	case hasGrown && finishesMore && settled, s.BaselineReady == 0 && (grows || atLimit):
		s.BaselineReady, s.BaselineRate = in.Ready, rates.FinishRate
	case hasGrown && !finishesMore && atLimit:
		s.SaturatedRate = max(rates.FinishRate, minSaturatedRate)
	}
}
