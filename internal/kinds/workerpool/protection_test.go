package workerpool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestBusyWorkersAreProtectedFromTheRemovalOfTheirNode(t *testing.T) {
	const protect, release, none = "protect", "release", ""
	busy := func(w *Worker) { w.Stats.InFlight = 1 }
	silent, noStats := reportNothing, func(s *testPool) { s.Stats = nil }
	writtenAt := func(d time.Duration) func(*Worker) { return func(w *Worker) { w.Protection.Written = testTime.Add(d) } }
	protected := func(w *Worker) { w.Protection = Protection{Active: true, Written: testTime.Add(-time.Hour)} }
	idleSince := func(ago time.Duration) func(*testPool) {
		return func(s *testPool) { s.BusyTimes = BusyTimes{"worker:1-0": testTime.Add(-ago)} }
	}
	for title, test := range map[string]struct {
		worker []func(*Worker)
		pool   func(*testPool)
		want   string
	}{
		"an idle worker":   {nil, nil, none},
		"a busy worker":    {[]func(*Worker){busy}, nil, protect},
		"prefetched only":  {[]func(*Worker){func(w *Worker) { w.Stats.Prefetched = 3 }}, nil, none},
		"already written":  {[]func(*Worker){busy, protected}, nil, none},
		"a draining one":   {[]func(*Worker){busy, func(w *Worker) { w.DrainingSince = testTime.Add(-time.Minute) }}, func(s *testPool) { s.withReplicas(0).Stats.InFlight = 1 }, protect},
		"a deleted one":    {[]func(*Worker){busy, func(w *Worker) { w.Terminating = true }}, nil, none},
		"set by the user":  {[]func(*Worker){busy, func(w *Worker) { w.Protection = Protection{Foreign: true, Active: true} }}, nil, none},
		"just became idle": {[]func(*Worker){protected}, idleSince(unprotectDelay - time.Second), none},
		"idle for long":    {[]func(*Worker){protected}, idleSince(unprotectDelay), release},
		"after a restart of the operator, an idle one keeps it": {[]func(*Worker){protected}, nil, none},
		"written less than 10 s ago":                            {[]func(*Worker){busy, writtenAt(time.Millisecond - protectionInterval)}, nil, none},
		"written 10 s ago":                                      {[]func(*Worker){busy, writtenAt(-protectionInterval)}, nil, protect},
		"written by a clock that is ahead":                      {[]func(*Worker){busy, writtenAt(time.Hour)}, nil, protect},
		"no answer, and no message without a worker":            {[]func(*Worker){silent}, nil, none},
		"no answer, and a message without a worker":             {[]func(*Worker){silent}, func(s *testPool) { s.Stats.InFlight = 1 }, protect},
		"no answer, and the broker counts nothing":              {[]func(*Worker){silent}, func(s *testPool) { s.Stats.InFlightKnown = false }, protect},
		"no answer of anyone":                                   {[]func(*Worker){silent}, noStats, protect},
		"no answer, and it was never ready":                     {[]func(*Worker){silent, unready}, noStats, none},
		"no answer, and its container does not run":             {[]func(*Worker){silent, func(w *Worker) { w.Running = false }}, noStats, none},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1).withCurrentRevision(1)
			for _, change := range test.worker {
				change(&s.Workers[0])
			}
			if test.pool != nil {
				test.pool(s)
			}
			decision, got := Decide(s.Observation), none
			for _, change := range decision.Protections {
				if got = release; change.Active {
					got = protect
				}
			}
			require.True(t, got == test.want, "%q, want %q", got, test.want)
		})
	}
}

func TestAWorkerWhoseDrainStateIsWrittenIsProtectedByTheNextDecision(t *testing.T) {
	s := newTestPool(0).withCurrentRevision(1).withInFlight("worker:1-0", 1)
	decision := Decide(s.Observation)
	require.Equal(t, [2]int{1, 0}, [2]int{len(decision.DrainStates), len(decision.Protections)})
}

// protectionSimulator simulates workers with jobs of any length. The operator restarts, and reads stale Pods, over which it cannot write.
type protectionSimulator struct {
	*testPool
	rng                  *rand.Rand
	longest              int // job, in seconds
	written              map[string]Protection
	busySince, busyUntil map[string]time.Time
	writes, restarts     int
}

// runJobs starts and ends jobs, and refreshes the cache of the operator for most Pods.
func (m *protectionSimulator) runJobs() {
	m.Now = m.Now.Add(time.Duration(500+m.rng.IntN(1500)) * time.Millisecond)
	for i := range m.Workers {
		w := &m.Workers[i]
		if m.Now.After(m.busyUntil[w.Name]) {
			delete(m.busySince, w.Name)
			if m.rng.IntN(4) == 0 {
				m.busySince[w.Name], m.busyUntil[w.Name] = m.Now, m.Now.Add(time.Duration(m.rng.IntN(m.longest))*time.Second)
			}
		}
		w.Stats.InFlight = 0
		if !m.busySince[w.Name].IsZero() {
			w.Stats.InFlight = 1
		}
		if m.rng.IntN(5) > 0 {
			w.Protection = m.written[w.Name]
		}
	}
}

// reconcileOnce decides and writes.
func (m *protectionSimulator) reconcileOnce(t *testing.T) {
	t.Helper()
	changes, busyTimes := planProtections(&m.Observation, nil)
	if m.BusyTimes = busyTimes; m.rng.IntN(30) == 0 {
		m.BusyTimes = nil
		m.restarts++
	}
	for _, change := range changes {
		before := m.written[change.Worker]
		i := slices.IndexFunc(m.Workers, func(w Worker) bool { return w.Name == change.Worker })
		if m.Workers[i].Protection != before {
			continue // the optimistic lock fails
		}
		since := m.Now.Sub(before.Written)
		require.True(t, since >= protectionInterval, "two writes on %s within %s", change.Worker, since)
		require.True(t, change.Active || m.busySince[change.Worker].IsZero(), "%s loses its protection while it is busy", change.Worker)
		m.written[change.Worker] = Protection{Active: change.Active, Written: change.Time}
		m.writes++
	}
}

// checkProtected checks that workers which are busy for 10 s are protected, unless their Pod is stale in the cache.
func (m *protectionSimulator) checkProtected(t *testing.T) {
	t.Helper()
	for i := range m.Workers {
		w := &m.Workers[i]
		isStale := w.Protection != m.written[w.Name]
		since := m.busySince[w.Name]
		mustBe := !since.IsZero() && m.Now.Sub(since) >= protectionInterval && !isStale
		require.True(t, !mustBe || m.written[w.Name].Active, "%s is busy for %s without protection", w.Name, m.Now.Sub(since))
	}
}

func TestProtectionsAreWrittenInTimeAndNotTooOften(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 14))
			m := &protectionSimulator{
				testPool: newTestPool(3).withCurrentRevision(3), rng: r, longest: 1 + r.IntN(60),
				written: map[string]Protection{}, busySince: map[string]time.Time{}, busyUntil: map[string]time.Time{},
			}
			for range 300 {
				m.runJobs()
				m.reconcileOnce(t)
				m.checkProtected(t)
			}
			require.True(t, m.writes != 0 && m.restarts != 0, "%d writes, %d restarts: too few for a meaningful test", m.writes, m.restarts)
		})
	}
}
