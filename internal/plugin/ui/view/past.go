package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Point is a value at a time.
type Point struct {
	Time  time.Time
	Value float64
}

// Past is the history of an object from Prometheus.
type Past struct {
	// Window is the covered time; 0 without Prometheus.
	Window time.Duration
	// Samples are in the order of their times.
	Samples []Sample
	// Problem is why the history cannot be read.
	Problem string
	// Loading is set until it has been read for the first time.
	Loading bool
}

// PastQuery is the query for the load of a Queue or WorkerPool, with a series for each state; empty for other kinds.
func PastQuery(e *Entry) string {
	selector := func(metric, label, states string) string {
		return fmt.Sprintf("max by (state) (%s{namespace=%s,%s=%s,state=~%q})", metric, strconv.Quote(e.Namespace), label, strconv.Quote(e.Name), states)
	}
	switch e.Kind {
	case Queues:
		return selector("yardmaster_queue_messages", "queue", "ready|in_flight")
	case Pools:
		return selector("yardmaster_workerpool_workers", "pool", "ready|busy|draining") + " or " + selector("yardmaster_workerpool_messages", "pool", "backlog")
	default:
		return ""
	}
}

// NewPast converts the series of PastQuery to samples. After a time without values, the charts have a gap.
func NewPast(e *Entry, series map[string][]Point, window, step time.Duration) *Past {
	samples := map[time.Time]*Sample{}
	for state, points := range series {
		for _, point := range points {
			sample := samples[point.Time]
			if sample == nil {
				sample = &Sample{Time: point.Time}
				samples[point.Time] = sample
			}
			if field := sample.field(e.Kind, state); field != nil {
				*field = new(point.Value)
			}
		}
	}
	p := &Past{Window: window}
	for _, at := range slices.SortedFunc(maps.Keys(samples), time.Time.Compare) {
		if n := len(p.Samples); n > 0 && at.Sub(p.Samples[n-1].Time) > step+step/2 {
			p.Samples = append(p.Samples, Sample{Time: p.Samples[n-1].Time.Add(step)})
		}
		p.Samples = append(p.Samples, *samples[at])
	}
	return p
}

func (s *Sample) field(kind *Kind, state string) **float64 {
	switch {
	case kind == Queues && state == "ready", kind == Pools && state == "backlog":
		return &s.Backlog
	case kind == Queues && state == "in_flight":
		return &s.InFlight
	case kind == Pools && state == "ready":
		return &s.Ready
	case kind == Pools && state == "busy":
		return &s.Busy
	case kind == Pools && state == "draining":
		return &s.Draining
	default:
		return nil
	}
}

// before returns the samples of Prometheus, and then the samples that the page has collected since.
func (p *Past) before(seen []Sample) []Sample {
	if len(p.Samples) == 0 {
		return seen
	}
	last := p.Samples[len(p.Samples)-1].Time
	return append(slices.Clip(p.Samples), slices.DeleteFunc(slices.Clone(seen), func(s Sample) bool { return !s.Time.After(last) })...)
}
