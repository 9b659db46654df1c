package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// message is one of a load: when it comes, and how long its work takes, in seconds.
type message struct {
	at, service float64
}

// load is a way in which messages come. Its numbers are drawn by a seed, so that each
// scaler gets the very same messages.
type load struct {
	name, what string
	// most workers there may be.
	most int32
	draw func(r *rand.Rand) []message
}

// hour is how long messages come; the clock runs on until all are finished that can be.
const (
	hour    = 3600.0
	horizon = hour + 900
)

func loads() []load {
	return []load{
		{
			name: "bursts", most: 50, draw: bursts,
			what: "3 bursts of 3,000 to 7,000 messages at once, nothing between; 1 s each, exponential",
		},
		{
			name: "sine", most: 40, draw: sine,
			what: "2 to 75 messages a second and back in 15 min; 2 s each, lognormal",
		},
		{
			name: "steps", most: 40, draw: steps,
			what: "another rate from 0 to 70 a second every 5 to 10 min; 2 s each, exponential",
		},
		{
			name: "spikes", most: 40, draw: spikes,
			what: "3 messages a second, and 60 to 140 for 20 to 60 s every 4 to 10 min; 1 s each, lognormal",
		},
	}
}

func bursts(r *rand.Rand) []message {
	var all []message
	for i := range 3 {
		at := 1200*float64(i) + 600*r.Float64()
		for range 3000 + r.IntN(4001) {
			all = append(all, message{at: at + r.Float64(), service: exponential(r, 1)})
		}
	}
	return sorted(all)
}

func sine(r *rand.Rand) []message {
	phase := 2 * math.Pi * r.Float64()
	rate := func(t float64) float64 { return 38.5 + 36.5*math.Sin(2*math.Pi*t/900+phase) }
	return poisson(r, 75, rate, func() float64 { return lognormal(r, 2, 1) })
}

func steps(r *rand.Rand) []message {
	var ends, rates []float64
	for end := 0.0; end < hour; {
		end += 300 + 300*r.Float64()
		ends = append(ends, end)
		rates = append(rates, 70*r.Float64())
	}
	rates[r.IntN(len(rates))] = 0
	rate := func(t float64) float64 {
		i, _ := slices.BinarySearch(ends, t)
		return rates[i]
	}
	return poisson(r, 70, rate, func() float64 { return exponential(r, 2) })
}

func spikes(r *rand.Rand) []message {
	var from, until, heights []float64
	for at := 100 + 300*r.Float64(); at < hour; at += 240 + 360*r.Float64() {
		from, until = append(from, at), append(until, at+20+40*r.Float64())
		heights = append(heights, 60+80*r.Float64())
	}
	rate := func(t float64) float64 {
		for i := range from {
			if t >= from[i] && t < until[i] {
				return heights[i]
			}
		}
		return 3
	}
	return poisson(r, 140, rate, func() float64 { return lognormal(r, 1, 1) })
}

// poisson draws arrivals whose rate changes, by thinning those of the highest rate.
func poisson(r *rand.Rand, highest float64, rate func(t float64) float64, service func() float64) []message {
	var all []message
	for t := r.ExpFloat64() / highest; t < hour; t += r.ExpFloat64() / highest {
		if r.Float64()*highest < rate(t) {
			all = append(all, message{at: t, service: service()})
		}
	}
	return all
}

func exponential(r *rand.Rand, mean float64) float64 { return mean * r.ExpFloat64() }

// lognormal has the mean given, and a standard deviation of spread times that.
func lognormal(r *rand.Rand, mean, spread float64) float64 {
	variance := math.Log(1 + spread*spread)
	return math.Exp(math.Log(mean) - variance/2 + math.Sqrt(variance)*r.NormFloat64())
}

func sorted(all []message) []message {
	slices.SortFunc(all, func(a, b message) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		default:
			return 0
		}
	})
	return all
}
