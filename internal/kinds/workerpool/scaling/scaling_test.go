package scaling

import (
	"time"
)

// testTime is the time of decisions in tests.
var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// defaultSettings returns settings with the defaults: 0 to 20 workers, concurrency 10.
func defaultSettings() Settings {
	return Settings{MaxReplicas: 20, Concurrency: 10, WaitP95: 30 * time.Second, IdleAfter: time.Minute, ScaleDown: defaultScaleDown}
}

// memoryWithRate returns a memory with a service time of one second, an arrival rate, and recommendations of zero for an hour.
func memoryWithRate(rate float64) Memory {
	return Memory{
		Rates:           Rates{BusySeconds: 100, BusyFinished: 100, ArrivalRate: rate, TrendRate: rate},
		Recommendations: Recommendations{{Start: testTime.Add(-time.Hour)}},
	}
}

// justStarted is the memory of an operator that has just started.
func justStarted(m Memory) Memory {
	m.ResumedAt = testTime
	return m
}

// observationOf returns an observation of a pool whose workers are all ready.
func observationOf(replicas int32, f *BacklogStats, m Memory, changes ...func(p *Settings)) Observation {
	in := Observation{Now: testTime, Settings: defaultSettings(), Replicas: replicas, Ready: replicas, PodStart: 10 * time.Second, Stats: f, Memory: m}
	for _, change := range changes {
		change(&in.Settings)
	}
	return in
}

// outcome is the part of a decision that most tests compare.
type outcome struct {
	Want, Applied int32
	Reason        Reason
}
