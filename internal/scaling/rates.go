package scaling

import (
	"math"
	"time"
)

const (
	// rateMemory is how long ago an arrival counts by a third.
	rateMemory = 10 * time.Second
	// trendMemory is the same for the average that the rate is compared with to see it grow.
	trendMemory = 40 * time.Second
	// burst is how many times what is known of a rate what arrives may be, to count as one.
	burst = 4
	// serviceMemory is the same for work; only time in which there was work counts.
	serviceMemory = 2 * time.Minute
	// fewFinished messages say little about how long one takes.
	fewFinished = 5
)

// Rates are how fast messages come and go, smoothed.
type Rates struct {
	// At is when the counters were read; zero, if they have to be read anew.
	At                time.Time
	Arrived, Finished *int64
	// Held messages, waiting and in flight.
	Held int64
	// Arriving and Finishing messages a second. Earlier is Arriving over a longer time, and
	// Latest what arrived since the last figures.
	Arriving, Finishing, Earlier, Latest float64
	// Worked is how long messages were in flight, in seconds, and Ended how many were
	// finished in that time; what is long ago counts less.
	Worked, Ended float64
	// Service is what the workers said last that a message takes, in seconds; 0 if they
	// never did.
	Service float64
}

// learn takes in what has changed since the last figures.
func (m *Memory) learn(in Input) {
	r, f := &m.Rates, in.Figures
	if f.ServiceTime > 0 {
		r.Service = f.ServiceTime.Seconds()
	}
	held := f.Backlog + f.InFlight
	elapsed := in.Now.Sub(r.At).Seconds()
	if !r.At.IsZero() && elapsed > 0 {
		finished, known := gone(f.Finished, r.Finished)
		if known {
			r.Finishing = smooth(r.Finishing, float64(finished)/elapsed, elapsed, rateMemory)
			r.work(float64(f.InFlight)*elapsed, float64(finished), elapsed)
		}
		if arrived, known := arrivals(f, r, held, finished, known); known {
			r.arrive(float64(arrived)/elapsed, elapsed, in.Policy.Concurrency)
		}
	}
	r.At, r.Held = in.Now, held
	r.Arrived, r.Finished = f.Arrived, f.Finished
}

// arrivals since the last figures: counted by the broker, or what is more and what is
// finished together.
func arrivals(f *Figures, r *Rates, held, finished int64, finishedKnown bool) (int64, bool) {
	if f.Arrived != nil {
		return gone(f.Arrived, r.Arrived)
	}
	return max(0, held-r.Held+finished), finishedKnown
}

// gone is by how much a counter has gone on. One that went back tells nothing.
func gone(now, before *int64) (int64, bool) {
	if now == nil || before == nil || *now < *before {
		return 0, false
	}
	return *now - *before, true
}

// arrive takes in a rate. What comes all at once is a backlog and not a rate, and is
// counted as a backlog; so a rate counts only up to some times what is known of it and
// what one worker could do.
func (r *Rates) arrive(rate, elapsed float64, concurrency int32) {
	r.Latest = min(rate, burst*(r.Arriving+float64(concurrency)/r.assumedServiceTime().Seconds()))
	r.Arriving = smooth(r.Arriving, r.Latest, elapsed, rateMemory)
	r.Earlier = smooth(r.Earlier, r.Latest, elapsed, trendMemory)
}

// ahead is the rate in that time, if it goes on to grow as it does. It never falls ahead
// of time, and never grows by more than a quarter: what looks like growth may be chance.
func (r *Rates) ahead(lead time.Duration) float64 {
	growth := max(0, r.Arriving-r.Earlier) / (trendMemory - rateMemory).Seconds()
	return r.Arriving + min(growth*(rateMemory+lead).Seconds(), r.Arriving/4)
}

// smooth brings an average nearer to what was seen for so many seconds.
func smooth(average, seen, seconds float64, memory time.Duration) float64 {
	return average + (seen-average)*(1-math.Exp(-seconds/memory.Seconds()))
}

// work takes in what was worked on. Nothing is forgotten while there is no work.
func (r *Rates) work(worked, ended, elapsed float64) {
	if worked == 0 && ended == 0 {
		return
	}
	kept := math.Exp(-elapsed / serviceMemory.Seconds())
	r.Worked, r.Ended = r.Worked*kept+worked, r.Ended*kept+ended
}

// serviceTime of a message; 0 if not known. By Little's law it is the time that messages
// were in flight, over how many were finished.
func (r *Rates) serviceTime() time.Duration {
	seconds := r.Service
	if seconds == 0 && r.Ended >= fewFinished {
		seconds = r.Worked / r.Ended
	}
	return time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
}

// assumedServiceTime is what to go by when it is not known.
func (r *Rates) assumedServiceTime() time.Duration {
	if service := r.serviceTime(); service > 0 {
		return service
	}
	return assumedService
}
