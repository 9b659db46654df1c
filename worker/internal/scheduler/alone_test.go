package scheduler

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// aloneScheduler is a worker that runs a suspect and an innocent job, and has prefetched a third message.
type aloneScheduler struct {
	*Scheduler

	buffer            *PriorityBuffer
	suspect, innocent *LeasedMessage
	released          atomic.Int64
}

func newAloneScheduler(t *testing.T) *aloneScheduler {
	t.Helper()
	a := &aloneScheduler{}
	a.Scheduler = New(time.Now, func(m *LeasedMessage) {
		a.released.Add(1)
		a.MarkReleased(m)
	})
	q := NewScheduledQueue(queueConfig("orders"), nil)
	a.buffer = q.Buffers[0]
	a.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 3, MaxInFlight: 10})
	for range 3 {
		a.AddMessage(a.buffer, pollRequest, fakeDelivery{backlog: 10})
	}
	now := time.Now()
	a.suspect, a.innocent = a.startNextMessage(now), a.startNextMessage(now)
	return a
}

// runAlone reports the result of RunAlone for the suspect.
func (a *aloneScheduler) runAlone(t *testing.T, patience time.Duration) <-chan bool {
	t.Helper()
	result := make(chan bool, 1)
	go func() { result <- a.RunAlone(a.suspect, patience) }()
	poll.Until(t, "the prefetched message to be given back", func() bool { return a.released.Load() == 1 })
	return result
}

func (a *aloneScheduler) end(m *LeasedMessage, outcome JobOutcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finishMessage(m, outcome, time.Now())
}

// requireIdle fails the test if the worker starts or requests a message, or keeps an arriving one.
func (a *aloneScheduler) requireIdle(t *testing.T) {
	t.Helper()
	before := a.released.Load()
	a.AddMessage(a.buffer, pollRequest, fakeDelivery{backlog: 10})
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.startNextMessage(time.Now())
	require.True(t, m == nil && a.allowedRequest(a.buffer).Messages == 0 && a.released.Load() == before+1, "the worker takes messages beside a suspect")
}

// requireBusy fails the test unless the worker takes messages.
func (a *aloneScheduler) requireBusy(t *testing.T) {
	t.Helper()
	a.AddMessage(a.buffer, pollRequest, fakeDelivery{backlog: 10})
	a.mu.Lock()
	defer a.mu.Unlock()
	require.True(t, a.startNextMessage(time.Now()) != nil, "the worker takes no messages after a suspect")
}

func TestASuspectRunsWhileItsWorkerHasNoOtherMessage(t *testing.T) {
	for title, endInnocent := range map[string]func(*aloneScheduler){
		"the other job ends":       func(a *aloneScheduler) { a.end(a.innocent, OutcomeSucceeded) },
		"the other job is overdue": func(a *aloneScheduler) { a.MarkOverdue(a.innocent) },
	} {
		for next, endSuspect := range map[string]func(*aloneScheduler){
			"and the suspect ends":       func(a *aloneScheduler) { a.end(a.suspect, OutcomeFailed) },
			"and the suspect is overdue": func(a *aloneScheduler) { a.MarkOverdue(a.suspect) },
		} {
			t.Run(title+" "+next, func(t *testing.T) {
				a := newAloneScheduler(t)
				isAlone := a.runAlone(t, time.Hour)
				a.requireIdle(t)
				require.True(t, !a.RunAlone(a.innocent, time.Hour), "two messages run alone")
				select {
				case <-isAlone:
					t.Fatal("the suspect does not wait for the other job")
				default:
				}
				endInnocent(a)
				require.True(t, <-isAlone, "the suspect does not run")
				a.requireIdle(t)
				endSuspect(a)
				a.requireBusy(t)
			})
		}
	}
}

func TestASuspectIsGivenBackIfItsWorkerCannotRunIt(t *testing.T) {
	for title, row := range map[string]struct {
		patience time.Duration
		change   func(*aloneScheduler)
		busy     bool
	}{
		"the other job takes longer": {time.Millisecond, func(*aloneScheduler) {}, true},
		"it drains":                  {time.Hour, func(a *aloneScheduler) { a.Drain() }, false},
		"its handler is unavailable": {time.Hour, func(a *aloneScheduler) { a.Hold(true) }, false},
		"the queue is removed":       {time.Hour, func(a *aloneScheduler) { a.RetireQueues([]*ScheduledQueue{a.buffer.queue}) }, false},
		"it ends":                    {time.Hour, func(a *aloneScheduler) { a.Close() }, false},
	} {
		t.Run(title, func(t *testing.T) {
			a := newAloneScheduler(t)
			isAlone := a.runAlone(t, row.patience)
			row.change(a)
			require.True(t, !<-isAlone, "the suspect runs beside another job")
			if row.busy {
				a.requireBusy(t)
			}
		})
	}
}
