package scaling

import (
	"math"
	"time"
)

const (
	// rateTimeConstant is how long ago an arrival counts by a third.
	rateTimeConstant = 10 * time.Second
	// trendTimeConstant is the same for the average that the rate is compared with to see it grow.
	trendTimeConstant = 40 * time.Second
	// maxBurstFactor is how many times what is known of a rate what arrives may be, to count as one.
	maxBurstFactor = 4
	// serviceTimeConstant is the same for work; only time in which there was work counts.
	serviceTimeConstant = 2 * time.Minute
	// minFinishedSamples messages say little about how long one takes.
	minFinishedSamples = 5
)

// Rates are how fast messages come and go, smoothed.
type Rates struct {
	// MeasuredAt is when the counters were read; zero, if they have to be read anew.
	MeasuredAt        time.Time
	Arrived, Finished *int64
	// Outstanding messages, waiting and in flight.
	Outstanding int64
	// ArrivalRate and Finishing messages a second. Earlier is Arriving over a longer time, and
	// Latest what arrived since the last figures.
	ArrivalRate, FinishRate, TrendRate, LatestRate float64
	// BusySeconds is how long messages were in flight, in seconds, and Ended how many were
	// finished in that time; what is long ago counts less.
	BusySeconds, BusyFinished float64
	// ReportedServiceSeconds is what the workers said last that a message takes, in seconds; 0 if they
	// never did.
	ReportedServiceSeconds float64
}

// updateRates takes in what has changed since the last figures.
func (m *Memory) updateRates(in Observation) {
	r, f := &m.Rates, in.Stats
	if f.ServiceTime > 0 {
		r.ReportedServiceSeconds = f.ServiceTime.Seconds()
	}
	held := f.Backlog + f.InFlight
	elapsed := in.Now.Sub(r.MeasuredAt).Seconds()
	if !r.MeasuredAt.IsZero() && elapsed > 0 {
		finished, known := counterIncrease(f.Finished, r.Finished)
		if known {
			r.FinishRate = exponentialAverage(r.FinishRate, float64(finished)/elapsed, elapsed, rateTimeConstant)
			r.addWork(float64(f.InFlight)*elapsed, float64(finished), elapsed)
		}
		if arrived, known := arrivedSinceLast(f, r, held, finished, known); known {
			r.addArrivals(float64(arrived)/elapsed, elapsed, in.Settings.Concurrency)
		}
	}
	r.MeasuredAt, r.Outstanding = in.Now, held
	r.Arrived, r.Finished = f.Arrived, f.Finished
}

// arrivedSinceLast since the last figures: counted by the broker, or what is more and what is
// finished together.
func arrivedSinceLast(f *BacklogStats, r *Rates, held, finished int64, finishedKnown bool) (int64, bool) {
	if f.Arrived != nil {
		return counterIncrease(f.Arrived, r.Arrived)
	}
	return max(0, held-r.Outstanding+finished), finishedKnown
}

// counterIncrease is by how much a counter has gone on. One that went back tells nothing.
func counterIncrease(now, before *int64) (int64, bool) {
	if now == nil || before == nil || *now < *before {
		return 0, false
	}
	return *now - *before, true
}

// addArrivals takes in a rate. What comes all at once is a backlog and not a rate, and is
// counted as a backlog; so a rate counts only up to some times what is known of it and
// what one worker could do.
func (r *Rates) addArrivals(rate, elapsed float64, concurrency int32) {
	r.LatestRate = min(rate, maxBurstFactor*(r.ArrivalRate+float64(concurrency)/r.serviceTimeOrDefault().Seconds()))
	r.ArrivalRate = exponentialAverage(r.ArrivalRate, r.LatestRate, elapsed, rateTimeConstant)
	r.TrendRate = exponentialAverage(r.TrendRate, r.LatestRate, elapsed, trendTimeConstant)
}

// forecastRate is the rate in that time, if it goes on to grow as it does. It never falls ahead
// of time, and never grows by more than a quarter: what looks like growth may be chance.
func (r *Rates) forecastRate(lead time.Duration) float64 {
	growth := max(0, r.ArrivalRate-r.TrendRate) / (trendTimeConstant - rateTimeConstant).Seconds()
	return r.ArrivalRate + min(growth*(rateTimeConstant+lead).Seconds(), r.ArrivalRate/4)
}

// exponentialAverage brings an average nearer to what was seen for so many seconds.
func exponentialAverage(average, seen, seconds float64, memory time.Duration) float64 {
	return average + (seen-average)*(1-math.Exp(-seconds/memory.Seconds()))
}

// addWork takes in what was worked on. Nothing is forgotten while there is no work.
func (r *Rates) addWork(worked, ended, elapsed float64) {
	if worked == 0 && ended == 0 {
		return
	}
	kept := math.Exp(-elapsed / serviceTimeConstant.Seconds())
	r.BusySeconds, r.BusyFinished = r.BusySeconds*kept+worked, r.BusyFinished*kept+ended
}

// serviceTime of a message; 0 if not known. By Little's law it is the time that messages
// were in flight, over how many were finished.
func (r *Rates) serviceTime() time.Duration {
	seconds := r.ReportedServiceSeconds
	if seconds == 0 && r.BusyFinished >= minFinishedSamples {
		seconds = r.BusySeconds / r.BusyFinished
	}
	return time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
}

// serviceTimeOrDefault is what to go by when it is not known.
func (r *Rates) serviceTimeOrDefault() time.Duration {
	if service := r.serviceTime(); service > 0 {
		return service
	}
	return defaultServiceTime
}
