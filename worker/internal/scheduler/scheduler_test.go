package scheduler

import (
	"errors"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// fakeDelivery is a message with the given number of messages behind it at the broker.
type fakeDelivery struct {
	broker.Delivery
	backlog uint64
}

func (d fakeDelivery) PendingCount() uint64 { return d.backlog }

// unavailableLimiter is a rate limit that never assigns a slot.
type unavailableLimiter struct{ broker.RateLimiter }

func (unavailableLimiter) IsLimited() bool { return true }

var pollRequest = FetchRequest{Messages: 1, Poll: true}

func discardRelease(*LeasedMessage) {}

func queueConfig(name string) QueueConfig {
	return QueueConfig{QueueConfig: broker.DefaultQueueConfig(name), Weight: 1}
}

// The worker is full of prefetched low-priority messages when a high-priority backlog is discovered.
func TestOutrankedMessagesDoNotBlockAMoreUrgentPriority(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := New(func() time.Time { return now }, discardRelease)
	config := queueConfig("orders")
	config.Priorities = []broker.Priority{{Name: "high", Weight: 1}, {Name: "low", Weight: 1}}
	config.StrictPriority = true
	q := NewScheduledQueue(config, nil)
	s.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 2, MaxInFlight: 2 + MaxPrefetch})
	high, low := q.Buffers[0], q.Buffers[1]
	for range 2 {
		s.AddMessage(low, pollRequest, fakeDelivery{})
	}
	s.AddMessage(high, pollRequest, fakeDelivery{backlog: 10})

	m := s.startNextMessage(s.now())
	require.True(t, m != nil && m.buffer == high, "started %+v, want the message with high priority", m)
	require.True(t, s.startNextMessage(s.now()) == nil, "started a message before the backlog of high priority")
	require.Equal(t, FetchRequest{Messages: 1}, s.allowedRequest(high))
	require.Equal(t, FetchRequest{}, s.allowedRequest(low))
	now = now.Add(maxIdlePrefetch + time.Second)
	s.UpdatePrefetch()
	require.True(t, len(low.messages) == 0 && s.releasing == 2, "%d messages of low priority are still prefetched, want 0", len(low.messages))
}

func TestPrioritiesShareTheWorkerByWeight(t *testing.T) {
	s := New(time.Now, discardRelease)
	config := queueConfig("orders")
	config.Priorities = []broker.Priority{{Name: "high", Weight: 3}, {Name: "low", Weight: 1}}
	q := NewScheduledQueue(config, nil)
	s.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 40, MaxInFlight: 80})
	for range 40 {
		s.AddMessage(q.Buffers[0], pollRequest, fakeDelivery{backlog: 100})
		s.AddMessage(q.Buffers[1], pollRequest, fakeDelivery{backlog: 100})
	}
	var started [2]int
	for range 40 {
		started[s.startNextMessage(s.now()).buffer.index]++
	}
	require.True(t, started == [2]int{30, 10}, "started %v, want three times as many of high priority", started)
}

func TestOnlyShortJobsArePrefetchedAndWithinMaxInFlight(t *testing.T) {
	for ended, want := range map[int]int{0: 1, 2: 3, 1000: 4} { // in an update interval
		s := New(time.Now, discardRelease)
		q := NewScheduledQueue(queueConfig("orders"), nil)
		s.SetQueues([]*ScheduledQueue{q}, MessageLimits{Concurrency: 2, MaxInFlight: 5})
		s.endedSinceUpdate = ended
		s.AddMessage(q.Buffers[0], pollRequest, fakeDelivery{backlog: 1000})
		require.True(t, s.startNextMessage(s.now()) != nil, "no message started")
		for interval, want := range []int{want, want, 1} {
			require.True(t, s.allowedRequest(q.Buffers[0]).Messages == want, "%d ended, interval %d", ended, interval)
			s.UpdatePrefetch()
		}
	}
}

func TestRateLimitedQueueDoesNotBlockOtherQueues(t *testing.T) {
	s := New(time.Now, discardRelease)
	limited, other := NewScheduledQueue(queueConfig("limited"), unavailableLimiter{}), NewScheduledQueue(queueConfig("other"), nil)
	s.SetQueues([]*ScheduledQueue{limited, other}, MessageLimits{Concurrency: 1, MaxInFlight: 1 + MaxPrefetch})
	s.AddMessage(limited.Buffers[0], pollRequest, fakeDelivery{backlog: 10})
	require.Equal(t, 0, s.allowedRequest(limited.Buffers[0]).Messages)
	require.Equal(t, 1, s.allowedRequest(other.Buffers[0]).Messages)
	s.AddMessage(other.Buffers[0], pollRequest, fakeDelivery{})
	m := s.startNextMessage(s.now())
	require.True(t, m != nil && m.buffer.queue == other, "started %+v, want the message of the other queue", m)
}

type kindDelivery struct {
	fakeDelivery
	kind string
}

func (d kindDelivery) Message() *broker.Message { return &broker.Message{Kind: d.kind} }

func kindOf(m *LeasedMessage) string { return m.Message().Kind }

// oneSlow lets one job of the kind slow run at a time.
var oneSlow = map[string]int{"slow": 1}

func newKindScheduler(now *time.Time, kinds map[string]int, limits MessageLimits, release func(*LeasedMessage)) (*Scheduler, *ScheduledQueue) {
	s := New(func() time.Time { return *now }, release)
	s.SetKindLimits(kinds)
	q := NewScheduledQueue(queueConfig("orders"), nil)
	s.SetQueues([]*ScheduledQueue{q}, limits)
	return s, q
}

func TestAJobOfAnotherKindOvertakesThoseThatWaitForTheirKind(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, q := newKindScheduler(&now, oneSlow, MessageLimits{Concurrency: 3, MaxInFlight: 100}, discardRelease)
	for _, kind := range []string{"slow", "slow", "slow", "fast", "other"} {
		s.AddMessage(q.Buffers[0], pollRequest, kindDelivery{fakeDelivery{backlog: 10}, kind})
	}
	var started []*LeasedMessage
	for m := s.startNextMessage(now); m != nil; m = s.startNextMessage(now) {
		started = append(started, m)
	}
	require.Equal(t, []string{"slow", "fast", "other"}, []string{kindOf(started[0]), kindOf(started[1]), kindOf(started[2])})
	require.Equal(t, 3, len(started))
	s.finishMessage(started[1], OutcomeSucceeded, now)
	require.True(t, s.startNextMessage(now) == nil, "started a second job of a kind")
	require.Equal(t, 2, s.allowedRequest(q.Buffers[0]).Messages) // to run and to prefetch: those that wait for their kind do not use the capacity
	s.finishMessage(started[0], OutcomeSucceeded, now)
	m := s.startNextMessage(now)
	require.True(t, m != nil && kindOf(m) == "slow", "the next job of the kind did not start when the first one ended")
}

func TestTheLeasesOfMessagesThatWaitForTheirKindAreExtended(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, q := newKindScheduler(&now, oneSlow, MessageLimits{Concurrency: 3, MaxInFlight: 100}, discardRelease)
	for range 2 {
		s.AddMessage(q.Buffers[0], pollRequest, kindDelivery{kind: "slow"})
	}
	s.startNextMessage(now)
	now = now.Add(q.Config.Lease / 2)
	require.Equal(t, 2, len(s.LeasesToExtend())) // that of the running and that of the waiting job
}

func TestAWaitingKindDoesNotBlockLowerPrioritiesOrReserveSlots(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := New(func() time.Time { return now }, discardRelease)
	s.SetKindLimits(oneSlow)
	config := queueConfig("orders")
	config.Priorities = []broker.Priority{{Name: "high", Weight: 1}, {Name: "low", Weight: 1}}
	config.StrictPriority = true
	q := NewScheduledQueue(config, nil)
	limited := NewScheduledQueue(queueConfig("limited"), unavailableLimiter{})
	s.SetQueues([]*ScheduledQueue{q, limited}, MessageLimits{Concurrency: 3, MaxInFlight: 100})
	high, low := q.Buffers[0], q.Buffers[1]
	for range 2 {
		s.AddMessage(high, pollRequest, kindDelivery{kind: "slow"})
	}
	s.AddMessage(low, pollRequest, kindDelivery{kind: "fast"})
	s.AddMessage(limited.Buffers[0], pollRequest, kindDelivery{kind: "slow"})
	s.AddMessage(limited.Buffers[0], pollRequest, kindDelivery{kind: "fast"})
	m := s.startNextMessage(now)
	require.True(t, m != nil && kindOf(m) == "slow", "the urgent job did not start first")
	m = s.startNextMessage(now)
	require.True(t, m != nil && m.buffer == low, "the job with low priority did not start, although the urgent one waits for its kind")
	slots, ok := s.NextReservation(limited)
	require.True(t, slots == 1 && ok, "%d slots are reserved, want 1 for the job that does not wait for its kind", slots)
}

// simulation is a worker and a broker that delivers messages in order, and those that were given back before others.
type simulation struct {
	t         *testing.T
	now       time.Time
	scheduler *Scheduler
	buffer    *PriorityBuffer
	kinds     map[string]int
	limits    MessageLimits
	durations map[string]time.Duration
	waiting   []string               // kinds of the messages that were never delivered
	returning map[time.Time][]string // and of those that were given back, by the time of their next delivery
	running   map[*LeasedMessage]time.Time
	done      map[string]int
	// pollUntil is the end of the current poll; zero without a poll.
	pollUntil time.Time
	mostHeld  int
}

func newSimulation(t *testing.T, kinds map[string]int, durations map[string]time.Duration, limits MessageLimits) *simulation {
	sim := &simulation{
		t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), kinds: kinds, durations: durations, limits: limits,
		returning: map[time.Time][]string{}, running: map[*LeasedMessage]time.Time{}, done: map[string]int{},
	}
	s, q := newKindScheduler(&sim.now, kinds, limits, func(m *LeasedMessage) {
		due := sim.now.Add(m.ReleaseDelay())
		sim.returning[due] = append(sim.returning[due], kindOf(m))
		sim.scheduler.MarkReleased(m)
	})
	sim.scheduler, sim.buffer = s, q.Buffers[0]
	return sim
}

func (sim *simulation) send(kind string, number int) {
	for range number {
		sim.waiting = append(sim.waiting, kind)
	}
}

// take returns the kinds of the next messages.
func (sim *simulation) take(number int) (taken []string) {
	for due, kinds := range sim.returning {
		for !due.After(sim.now) && len(kinds) > 0 && len(taken) < number {
			taken, kinds = append(taken, kinds[0]), kinds[1:]
		}
		if sim.returning[due] = kinds; len(kinds) == 0 {
			delete(sim.returning, due)
		}
	}
	for len(sim.waiting) > 0 && len(taken) < number {
		taken, sim.waiting = append(taken, sim.waiting[0]), sim.waiting[1:]
	}
	return taken
}

func (sim *simulation) deliver(request FetchRequest, kinds []string) {
	for i, kind := range kinds {
		backlog := len(sim.waiting) + len(kinds) - i - 1
		sim.scheduler.AddMessage(sim.buffer, request, kindDelivery{fakeDelivery{backlog: uint64(backlog)}, kind})
	}
	sim.scheduler.CompleteRequest(sim.buffer, request, len(kinds), nil)
}

func (sim *simulation) fetch() {
	if !sim.pollUntil.IsZero() {
		if kinds := sim.take(1); len(kinds) > 0 || !sim.now.Before(sim.pollUntil) {
			sim.pollUntil = time.Time{}
			sim.deliver(pollRequest, kinds)
		}
	}
	for sim.scheduler.allowedRequest(sim.buffer).Messages > 0 {
		request, _ := sim.scheduler.NextRequest(sim.buffer)
		if request.Poll {
			sim.pollUntil = sim.now.Add(time.Second)
			return
		}
		sim.deliver(request, sim.take(request.Messages))
	}
}

// step is the time that the simulation advances at once.
const step = 10 * time.Millisecond

// runUntil returns how long the worker takes until the condition is true, at most limit.
func (sim *simulation) runUntil(limit time.Duration, isTrue func() bool) time.Duration {
	begin := sim.now
	for ; !isTrue() && sim.now.Sub(begin) < limit; sim.now = sim.now.Add(step) {
		for m, end := range sim.running {
			if !sim.now.Before(end) {
				delete(sim.running, m)
				sim.done[kindOf(m)]++
				sim.scheduler.finishMessage(m, OutcomeSucceeded, sim.now)
			}
		}
		if sim.now.Sub(begin)%UpdateInterval == 0 {
			sim.scheduler.UpdatePrefetch()
		}
		sim.fetch()
		for m := sim.scheduler.startNextMessage(sim.now); m != nil; m = sim.scheduler.startNextMessage(sim.now) {
			sim.running[m] = sim.now.Add(sim.durations[kindOf(m)])
		}
		sim.requireBounds()
	}
	return sim.now.Sub(begin)
}

func (sim *simulation) requireBounds() {
	sim.t.Helper()
	running := map[string]int{}
	for m := range sim.running {
		running[kindOf(m)]++
	}
	for kind, limit := range sim.kinds {
		require.True(sim.t, running[kind] <= limit, "%d jobs of the kind %s run at a time, want at most %d", running[kind], kind, limit)
	}
	runs, leased := len(sim.running), len(sim.scheduler.leased)
	isWithin := runs <= sim.limits.Concurrency && leased <= sim.limits.MaxInFlight
	require.True(sim.t, isWithin, "%d jobs run and %d messages are leased, want at most %+v", runs, leased, sim.limits)
	sim.mostHeld = max(sim.mostHeld, sim.scheduler.heldForKinds())
}

func TestAFloodOfJobsThatWaitForTheirKindDoesNotStarveOthers(t *testing.T) {
	for title, row := range map[string]struct {
		slow     int
		duration time.Duration
		atMost   time.Duration
	}{
		"as many as the worker holds":       {100, time.Hour, time.Second},
		"more, each takes an hour":          {3000, time.Hour, 2 * time.Minute},
		"more, each takes half of a second": {2000, time.Second / 2, 2 * time.Minute},
	} {
		t.Run(title, func(t *testing.T) {
			sim := newSimulation(t, oneSlow, map[string]time.Duration{"slow": row.duration, "fast": time.Second}, MessageLimits{Concurrency: 4, MaxInFlight: 4 + MaxPrefetch})
			sim.send("slow", row.slow)
			sim.send("fast", 20)
			took := sim.runUntil(time.Hour, func() bool { return sim.done["fast"] == 20 })
			longer := took - 7*time.Second // 20 jobs in three slots
			require.True(t, longer <= row.atMost, "the jobs behind the flood took %s longer than alone, want at most %s", longer, row.atMost)
			most := maxHeldForKinds + 4
			require.True(t, sim.mostHeld <= most, "%d messages waited in the worker, want at most %d", sim.mostHeld, most)
		})
	}
}

// A worker with random limits does random jobs, which arrive at random times.
func TestEveryJobOfAKindWithALimitIsDone(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		concurrency := 1 + random.IntN(8)
		limits := MessageLimits{Concurrency: concurrency, MaxInFlight: concurrency + []int{0, 1, 20, MaxPrefetch}[random.IntN(4)]}
		kinds, durations := map[string]int{}, map[string]time.Duration{}
		for _, kind := range []string{"a", "b", "c", "d"} {
			if random.IntN(4) > 0 {
				kinds[kind] = 1 + random.IntN(3)
			}
			durations[kind] = step << random.IntN(8)
		}
		sim, sent := newSimulation(t, kinds, durations, limits), map[string]int{}
		for range 5 {
			for kind := range durations {
				number := random.IntN(60)
				sim.send(kind, number)
				sent[kind] += number
			}
			sim.runUntil(time.Duration(random.IntN(20))*time.Second, func() bool { return false })
		}
		sim.runUntil(2*time.Hour, func() bool { return maps.Equal(sim.done, sent) })
		require.True(t, maps.Equal(sim.done, sent), "seed %d, %+v, limits %v: %v were sent, %v are done", seed, limits, kinds, sent, sim.done)
	}
}

func TestASlotOfAKindIsSeldomIdleWhileItsJobsWait(t *testing.T) {
	for title, duration := range map[string]time.Duration{
		"short jobs": 20 * time.Millisecond, "jobs of a second": time.Second, "jobs of three seconds": 3 * time.Second, "jobs of a minute": time.Minute,
	} {
		t.Run(title, func(t *testing.T) {
			sim := newSimulation(t, oneSlow, map[string]time.Duration{"slow": duration}, MessageLimits{Concurrency: 4, MaxInFlight: 4 + MaxPrefetch})
			sim.send("slow", 50)
			took := sim.runUntil(24*time.Hour, func() bool { return sim.done["slow"] == 50 })
			busy := 50 * (duration + step)
			require.True(t, took <= busy*5/4, "50 jobs took %s, want about %s", took, busy)
		})
	}
}

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

func TestAQueueIsUnreachableWhenEachRequestFailsForAMinute(t *testing.T) {
	for title, row := range map[string]struct {
		seconds []int // when requests end
		success int   // the index of the only one that succeeds, from 1; 0 if none does
		want    bool
	}{
		"failures for less than a minute":          {[]int{0, 30, 59}, 0, false},
		"failures for a minute":                    {[]int{0, 30, 60}, 0, true},
		"one failure, and then the worker is full": {[]int{0}, 0, false},
		"a success after a minute":                 {[]int{0, 60, 61}, 3, false},
		"a failure after a success":                {[]int{0, 60, 120}, 2, false},
	} {
		t.Run(title, func(t *testing.T) {
			now := time.Unix(0, 0)
			s, q := newKindScheduler(&now, nil, MessageLimits{Concurrency: 1}, discardRelease)
			for i, second := range row.seconds {
				now = time.Unix(int64(second), 0)
				var err error
				if i+1 != row.success {
					err = errors.New("the broker does not answer")
				}
				s.CompleteRequest(q.Buffers[0], pollRequest, 0, err)
			}
			now = now.Add(time.Hour)
			require.Equal(t, row.want, s.Snapshot().Queues[0].Unreachable)
		})
	}
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
				require.True(t, len(isAlone) == 0, "the suspect does not wait for the other job")
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
