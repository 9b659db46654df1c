package queue

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// at is figures of so many seconds past noon.
func at(second float64, arrivals uint64, ready, inFlight int64, headAge time.Duration) *broker.QueueStats {
	f := &broker.QueueStats{
		MeasuredTime: noon.Add(time.Duration(second * float64(time.Second))), TotalArrivals: arrivals, Ready: ready, InFlight: inFlight,
	}
	if ready > 0 {
		f.OldestReadyTime = f.MeasuredTime.Add(-headAge)
	}
	return f
}

func TestASteadyRateIsToldFromTheSecondReadingOn(t *testing.T) {
	m := Memory{}.learn(at(0, 100, 0, 0, 0))
	if m.Rates.Seconds != 0 {
		t.Errorf("one reading gives a rate: %+v", m.Rates)
	}
	for i := 1; i <= 20; i++ {
		m = m.learn(at(float64(5*i), 100+uint64(50*i), 0, int64(i%3), 0))
		if got := m.Rates.Arriving(); math.Abs(got-10) > 0.01 {
			t.Errorf("after reading %d the rate is %f, want 10", i, got)
		}
	}
	if got := m.Rates.Finishing(); math.Abs(got-10) > 0.5 {
		t.Errorf("finished are %f a second, want 10", got)
	}
}

func TestARateFadesToNone(t *testing.T) {
	m := Memory{}.learn(at(0, 0, 0, 0, 0)).learn(at(5, 1000, 0, 0, 0))
	looks := 0
	for second := 10.0; m.Rates.Arriving() > 0; looks++ {
		m = m.learn(at(second, 1000, 0, 0, 0))
		second += m.Interval().Seconds()
	}
	if looks > 20 {
		t.Errorf("it takes %d looks until nothing changes any more", looks)
	}
}

func TestACounterThatGoesBackBeginsAnew(t *testing.T) {
	m := Memory{}.learn(at(0, 1000, 0, 0, 0)).learn(at(5, 2000, 7, 0, time.Second)).learn(at(10, 3, 0, 0, 0))
	if m.Rates.Seconds != 0 || len(m.Waits) != 0 || m.Last.TotalArrivals != 3 {
		t.Errorf("it remembers %+v", m)
	}
}

func TestWaitsAreThoseOfTheMessagesBegun(t *testing.T) {
	for name, row := range map[string]struct {
		readings []*broker.QueueStats
		p50, p95 time.Duration
	}{
		"taken at once": {
			readings: []*broker.QueueStats{at(0, 0, 0, 0, 0), at(5, 50, 0, 2, 0)},
		},
		"a backlog of constant age": {
			readings: []*broker.QueueStats{at(0, 100, 100, 0, 20*time.Second), at(5, 150, 100, 0, 20*time.Second)},
			p50:      20 * time.Second, p95: 20 * time.Second,
		},
		"a backlog that was worked off": {
			readings: []*broker.QueueStats{at(0, 100, 100, 0, 40*time.Second), at(10, 100, 0, 0, 0)},
			p50:      15 * time.Second, p95: 35 * time.Second,
		},
		"some that waited, among many that did not": {
			readings: []*broker.QueueStats{at(0, 1000, 10, 0, time.Minute), at(5, 1000, 0, 0, 0), at(10, 1990, 0, 0, 0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := Memory{}
			for _, f := range row.readings {
				m = m.learn(f)
			}
			got := m.Waits.quantiles()
			if got == nil {
				t.Fatal("no message was begun")
			}
			if got.P50.Duration != row.p50 || got.P95.Duration != row.p95 {
				t.Errorf("p50 %s, p95 %s; want %s, %s", got.P50.Duration, got.P95.Duration, row.p50, row.p95)
			}
		})
	}
}

// A real queue, first in first out, in steps of a tenth of a second: what is told from a
// look every five seconds is near to what messages really waited.
func TestWaitsAreNearToTheTruth(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		var line []float64 // when each came
		var waited Waits
		m, arrived := Memory{}, uint64(0)
		for step := range 1200 {
			now := float64(step) / 10
			burst := 1 + step/400%2 // it gets busier, and calmer again
			for range random.IntN(4 * burst) {
				line, arrived = append(line, now), arrived+1
			}
			for range min(len(line), random.IntN(6)) {
				waited = append(waited, WaitPoint{Wait: time.Duration((now - line[0]) * float64(time.Second)), Weight: 1})
				line = line[1:]
			}
			if step%50 == 0 {
				age := time.Duration(0)
				if len(line) > 0 {
					age = time.Duration((now - line[0]) * float64(time.Second))
				}
				m = m.learn(at(now, arrived, int64(len(line)), 0, age))
			}
		}
		got, want := m.Waits.quantiles().P95.Duration, sortedQuantile(waited, 0.95)
		if off := (got - want).Abs(); off > 2*time.Second && off > want/4 {
			t.Errorf("round %d: p95 is told to be %s, and is %s", round, got, want)
		}
	}
}

func sortedQuantile(w Waits, part float64) time.Duration {
	var total float64
	most := time.Duration(0)
	for limit := time.Duration(0); ; limit += 100 * time.Millisecond {
		total = 0
		for _, p := range w {
			if p.Wait <= limit {
				total++
			}
		}
		if most = limit; total >= part*float64(len(w)) {
			return most
		}
	}
}

func TestAnEmptyQueueIsLookedAtMoreAndMoreSeldom(t *testing.T) {
	m := Memory{}.learn(at(0, 5, 2, 0, time.Second))
	if got := m.Interval(); got != busyInterval {
		t.Errorf("a busy one after %s", got)
	}
	for second, want := range map[float64]time.Duration{
		5: 5 * time.Second, 17: 12 * time.Second, 300: time.Minute, 3600: time.Minute,
	} {
		empty := m.learn(at(5, 5, 0, 0, 0)).learn(at(second, 5, 0, 0, 0))
		if got := empty.Interval(); got != want || !empty.Idle() {
			t.Errorf("after %f s: %s, want %s", second, got, want)
		}
	}
	delayed := at(9, 6, 0, 0, 0)
	delayed.Delayed = 1
	if got := m.learn(delayed).Interval(); got != delayedInterval {
		t.Errorf("one with something delayed after %s", got)
	}
}

func TestRoundIsSteady(t *testing.T) {
	for value, want := range map[float64]float64{0: 0, 7: 7, 99.4: 99, 1234: 1200, 98765: 99000} {
		if got := round(value); got != want {
			t.Errorf("%f is rounded to %f, want %f", value, got, want)
		}
	}
}
