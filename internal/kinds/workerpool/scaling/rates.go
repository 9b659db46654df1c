package scaling

import (
	"math"
	"time"
)

const (
	rateTimeConstant = 10 * time.Second
	// trendTimeConstant is the time constant of the slower average that shows whether the arrival
	// rate grows.
	trendTimeConstant = 40 * time.Second
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

func (m *Memory) updateRates(in Observation) {
	r, f := &m.Rates, in.Stats
	if f.ServiceTime > 0 {
		r.ReportedServiceSeconds = f.ServiceTime.Seconds()
	}
	held := f.Backlog + f.Running
	elapsed := in.Now.Sub(r.MeasuredAt).Seconds()
	if !r.MeasuredAt.IsZero() && elapsed > 0 {
		finished, known := counterIncrease(f.Finished, r.Finished)
		if known {
			r.FinishRate = exponentialAverage(r.FinishRate, float64(finished)/elapsed, elapsed, rateTimeConstant)
			r.addWork(float64(f.Running)*elapsed, float64(finished), elapsed)
		}
		if arrived, known := arrivedSinceLast(f, r, held, finished, known); known {
			r.addArrivals(float64(arrived)/elapsed, elapsed, in.Settings.Concurrency)
		}
	}
	r.MeasuredAt, r.Outstanding = in.Now, held
	r.Arrived, r.Finished = f.Arrived, f.Finished
}

// arrivedSinceLast returns the messages that arrived since the last measurement: as counted by the broker, or else the
// increase of outstanding messages plus finished messages.
func arrivedSinceLast(f *BacklogStats, r *Rates, held, finished int64, finishedKnown bool) (int64, bool) {
	if f.Arrived != nil {
		return counterIncrease(f.Arrived, r.Arrived)
	}
	return max(0, held-r.Outstanding+finished), finishedKnown
}

// counterIncrease returns the increase of a counter. It is unknown if the counter was reset.
func counterIncrease(now, before *int64) (int64, bool) {
	if now == nil || before == nil || *now < *before {
		return 0, false
	}
	return *now - *before, true
}

// addArrivals updates the arrival rate. A sudden burst counts as backlog instead, so a measurement counts only up to
// maxBurstFactor times the sum of the known rate and the rate that one worker can handle.
func (r *Rates) addArrivals(rate, elapsed float64, concurrency int32) {
	r.LatestRate = min(rate, maxBurstFactor*(r.ArrivalRate+float64(concurrency)/r.serviceTimeOrDefault().Seconds()))
	r.ArrivalRate = exponentialAverage(r.ArrivalRate, r.LatestRate, elapsed, rateTimeConstant)
	r.TrendRate = exponentialAverage(r.TrendRate, r.LatestRate, elapsed, trendTimeConstant)
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

// addWork updates the service time. Nothing decays while no handler runs.
func (r *Rates) addWork(worked, ended, elapsed float64) {
	if worked == 0 && ended == 0 {
		return
	}
	kept := math.Exp(-elapsed / serviceTimeConstant.Seconds())
	r.BusySeconds, r.BusyFinished = r.BusySeconds*kept+worked, r.BusyFinished*kept+ended
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
	if service := r.serviceTime(); service > 0 {
		return service
	}
	return defaultServiceTime
}
