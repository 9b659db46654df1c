package scheduler

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// kindDelivery is a message with a kind.
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
	require.Equal(t, 1, s.allowedRequest(q.Buffers[0]).Messages) // those that wait for their kind do not use the capacity
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
	if len(sim.running) > sim.limits.Concurrency || len(sim.scheduler.leased) > sim.limits.MaxInFlight {
		sim.t.Fatalf("%d jobs run and %d messages are leased, want at most %+v", len(sim.running), len(sim.scheduler.leased), sim.limits)
	}
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
			if took -= 7 * time.Second; took > row.atMost { // 20 jobs in three slots
				t.Errorf("the jobs behind the flood took %s longer than alone, want at most %s", took, row.atMost)
			}
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
		if diff := cmp.Diff(sent, sim.done); diff != "" {
			t.Fatalf("seed %d, %+v, limits %v: jobs (-sent +done):\n%s", seed, limits, kinds, diff)
		}
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
