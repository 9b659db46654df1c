package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

func queueEntry(q *v1alpha1.Queue) *Entry {
	e := newEntry(Queues, q)
	e.setReady(q, q.Status.Conditions)
	if dead := q.Status.Dead; dead != nil && *dead > 0 && !e.NeedsAttention {
		e.NeedsAttention = meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionDeadLettersPresent)
		e.Reason, e.Message = v1alpha1.ReasonDeadLetters, countOf(*dead, "dead letter")
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
	// Time is shown as an age instead of the value, if it is set.
	Time time.Time
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
}

// NewQueue computes the page of a Queue.
func NewQueue(e *Entry, q *v1alpha1.Queue, history []Sample) *Queue {
	status := &q.Status
	v := &Queue{
		Entry: e, Conditions: newConditions(status.Conditions),
		Facts: []Fact{
			{Name: "Backlog", Value: count(status.Ready)},
			{Name: "In flight", Value: count(status.InFlight)},
			{Name: "Delayed", Value: count(status.Delayed)},
			{Name: "Dead letters", Value: count(status.Dead), Level: deadLevel(status.Dead)},
			{Name: "Oldest message", Value: Unknown, Time: timeOf(status.OldestTime)},
			waitFact(status),
			{Name: "Arrivals", Value: rate(status.ArrivalRate)},
			{Name: "Finished", Value: rate(status.ServiceRate)},
			{Name: "Engine", Value: orUnknown(cleanLine(string(status.Engine)))},
		},
		Backlog: newChart("Backlog", history, Series{"waiting", func(s *Sample) *float64 { return s.Backlog }}, Series{"in flight", func(s *Sample) *float64 { return s.InFlight }}),
		Rates:   newChart("Messages per second", history, Series{"arrivals", func(s *Sample) *float64 { return s.Arrivals }}, Series{"finished", func(s *Sample) *float64 { return s.Finished }}),
		Actions: queueActions(e, q),
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

func waitFact(status *v1alpha1.QueueStatus) Fact {
	if status.Wait == nil {
		return Fact{Name: "Wait, p95", Value: Unknown}
	}
	return Fact{Name: "Wait, p95", Value: duration(status.Wait.P95)}
}

func queueActions(e *Entry, q *v1alpha1.Queue) []Action {
	if q.Spec.Paused {
		return []Action{{ID: "resume", Label: "Resume", Effect: "Workers receive messages again.", Args: objectArgs(e, "resume")}}
	}
	return []Action{{ID: "pause", Label: "Pause", Effect: "Workers receive no more messages, and finish those in flight. Producers can still send.", Args: objectArgs(e, "pause")}}
}

// DeadLetterList is the arguments of the command that reads dead letters.
func DeadLetterList(e *Entry) []string {
	return objectArgs(e, "dead", "list", "--output=json", fmt.Sprintf("--limit=%d", MaxDeadLetters))
}

// MaxDeadLetters is how many dead letters a page shows.
const MaxDeadLetters = 50

// DeadLetter is what the command prints of a dead letter.
type DeadLetter render.DeadLetter

// Clean returns the letter as a page shows it: text without control characters.
func (l *DeadLetter) Clean() *DeadLetter {
	clean := *l
	clean.Priority, clean.Error, clean.Origin, clean.Headers = cleanLine(l.Priority), cleanLine(l.Error), cleanLine(l.Origin), map[string][]string{}
	for name, values := range l.Headers {
		for _, value := range values {
			clean.Headers[cleanLine(name)] = append(clean.Headers[cleanLine(name)], cleanLine(value))
		}
	}
	clean.Payload = []byte(cleanText(string(l.Payload)))
	return &clean
}

// DeadLetterActions are the actions for the dead letters of a Queue.
func DeadLetterActions(e *Entry) []Action {
	return []Action{
		{ID: "requeue-oldest", Label: "Requeue the oldest", Effect: "Requeues the oldest dead letter as a new message, at the end of the queue.", Args: objectArgs(e, "dead", "requeue", "--oldest=1")},
		{ID: "requeue-10", Label: "Requeue the 10 oldest", Effect: "Requeues the 10 oldest dead letters as new messages.", Args: objectArgs(e, "dead", "requeue", "--oldest=10")},
		{ID: "requeue-all", Label: "Requeue all", Effect: "Requeues all dead letters as new messages.", Args: objectArgs(e, "dead", "requeue", "--all")},
		{
			ID: "purge", Label: "Delete all", Effect: "Deletes all dead letters. This cannot be undone.", Destroys: true, Confirm: e.Name,
			Args: objectArgs(e, "dead", "purge", "--all", "--yes"),
		},
	}
}
