package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// queuedMessage is a message of a load. Its times are in seconds.
type queuedMessage struct {
	arrivalTime, serviceTime float64
}

// messageLoad is a pattern of arriving messages. A seed determines the messages, so that each scaler gets the same ones.
type messageLoad struct {
	name         string
	maxWorkers   int32
	drawMessages func(r *rand.Rand) []queuedMessage
}

// arrivalPeriod is the time in which messages arrive. The simulation continues until simulationEnd, to finish them.
const (
	arrivalPeriod = 3600.0
	simulationEnd = arrivalPeriod + 900
)

func messageLoads() []messageLoad {
	return []messageLoad{
		{"bursts", 50, drawBursts},   // of 3,000 to 7,000 messages within a second; 1 s each, exponential
		{"sine", 40, drawSineWave},   // 2 to 75 messages per second, with a period of 15 min; 2 s each, lognormal
		{"steps", 40, drawRateSteps}, // a new rate of 0 to 70 messages per second every 5 to 10 min; 2 s each, exponential
		{"spikes", 40, drawSpikes},   // 3 messages per second, and 60 to 140 for 20 to 60 s every 4 to 10 min; 1 s each, lognormal
	}
}

func drawBursts(r *rand.Rand) []queuedMessage {
	var all []queuedMessage
	for i := range 3 {
		at := 1200*float64(i) + 600*r.Float64()
		for range 3000 + r.IntN(4001) {
			all = append(all, queuedMessage{arrivalTime: at + r.Float64(), serviceTime: drawExponential(r, 1)})
		}
	}
	slices.SortFunc(all, func(a, b queuedMessage) int { return cmp.Compare(a.arrivalTime, b.arrivalTime) })
	return all
}

func drawSineWave(r *rand.Rand) []queuedMessage {
	phase := 2 * math.Pi * r.Float64()
	rate := func(t float64) float64 { return 38.5 + 36.5*math.Sin(2*math.Pi*t/900+phase) }
	return drawPoissonArrivals(r, 75, rate, func() float64 { return drawLognormal(r, 2, 1) })
}

func drawRateSteps(r *rand.Rand) []queuedMessage {
	var ends, rates []float64
	for end := 0.0; end < arrivalPeriod; {
		end += 300 + 300*r.Float64()
		ends = append(ends, end)
		rates = append(rates, 70*r.Float64())
	}
	rates[r.IntN(len(rates))] = 0
	rate := func(t float64) float64 {
		i, _ := slices.BinarySearch(ends, t)
		return rates[i]
	}
	return drawPoissonArrivals(r, 70, rate, func() float64 { return drawExponential(r, 2) })
}

func drawSpikes(r *rand.Rand) []queuedMessage {
	var from, until, heights []float64
	for at := 100 + 300*r.Float64(); at < arrivalPeriod; at += 240 + 360*r.Float64() {
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
	return drawPoissonArrivals(r, 140, rate, func() float64 { return drawLognormal(r, 1, 1) })
}

// drawPoissonArrivals draws arrivals with a changing rate, by thinning arrivals of the highest rate.
func drawPoissonArrivals(r *rand.Rand, highest float64, rate func(t float64) float64, service func() float64) []queuedMessage {
	var all []queuedMessage
	for t := r.ExpFloat64() / highest; t < arrivalPeriod; t += r.ExpFloat64() / highest {
		if r.Float64()*highest < rate(t) {
			all = append(all, queuedMessage{arrivalTime: t, serviceTime: service()})
		}
	}
	return all
}

func drawExponential(r *rand.Rand, mean float64) float64 { return mean * r.ExpFloat64() }

// drawLognormal draws from a lognormal distribution with a standard deviation of spread times the mean.
func drawLognormal(r *rand.Rand, mean, spread float64) float64 {
	variance := math.Log(1 + spread*spread)
	return math.Exp(math.Log(mean) - variance/2 + math.Sqrt(variance)*r.NormFloat64())
}
