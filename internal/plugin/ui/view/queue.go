package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func queueEntry(q *v1alpha1.Queue) *Entry {
	e := newEntry(Queues, q)
	e.setReady(q, q.Status.Conditions)
	if dead := q.Status.Dead; dead != nil && *dead > 0 && !e.NeedsAttention {
		e.Reason, e.Message = v1alpha1.ReasonDeadLetters, countOf(*dead, "dead letter")
		if present := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionDeadLettersPresent); present != nil && present.Status == metav1.ConditionTrue {
			e.setProblem(e.Reason, e.Message, present.LastTransitionTime.Time)
		}
	}
	return e
}

func countOf(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Fact is a named value.
type Fact struct {
	Name, Value string
	Level       Level
	// Time, if set, is shown as an age instead of the value.
	Time time.Time
	// Since, if set, is shown as the time since then.
	Since time.Time
	// Steps, Bars and Line, if set, are shown beside the value: the steps of a run, runs, and recent values.
	Steps []Segment
	Bars  []Bar
	Line  string
}

// Queue is the page of a Queue.
type Queue struct {
	*Entry

	Facts      []Fact
	Conditions []Condition
	Backlog    Chart
	Rates      Chart
	Dead       int64
	Actions    []Action
	Past       *Past
}

// NewQueue computes the page of a Queue. history is the samples that the page has collected, and past the history from Prometheus.
func NewQueue(e *Entry, q *v1alpha1.Queue, history []Sample, past *Past) *Queue {
	status := &q.Status
	action := newAction(e, "Suspend", "Workers receive no more messages, and finish those in flight. Producers can still send.", "suspend")
	if q.Spec.Suspend {
		action = newAction(e, "Resume", "Workers receive messages again.", "resume")
	}
	v := &Queue{
		Entry: e, Conditions: newConditions(status.Conditions),
		Facts: []Fact{
			{Name: "Backlog", Value: count(status.Backlog)},
			{Name: "In flight", Value: count(status.InFlight)},
			{Name: "Delayed", Value: count(status.Delayed)},
			{Name: "Dead letters", Value: count(status.Dead), Level: deadLevel(status.Dead)},
			{Name: "Oldest message", Value: Unknown, Time: timeOf(status.OldestTime)},
			{Name: "Wait, p95", Value: duration(status.WaitP95)},
			{Name: "Arrivals", Value: rate(status.ArrivalRate)},
			{Name: "Finished", Value: rate(status.ServiceRate)},
			{Name: "Engine", Value: orUnknown(cleanLine(string(status.Engine)))},
		},
		Backlog: newChart("Backlog", past.before(history), ChartSeries{"waiting", func(s *Sample) *float64 { return s.Backlog }}, ChartSeries{"in flight", func(s *Sample) *float64 { return s.InFlight }}),
		Rates:   newChart("Messages per second", history, ChartSeries{"arrivals", func(s *Sample) *float64 { return s.Arrivals }}, ChartSeries{"finished", func(s *Sample) *float64 { return s.Finished }}),
		Actions: []Action{action}, Past: past,
	}
	if status.Dead != nil {
		v.Dead = *status.Dead
	}
	return v
}

func deadLevel(n *int64) Level {
	if n != nil && *n > 0 {
		return LevelProblem
	}
	return LevelNone
}
