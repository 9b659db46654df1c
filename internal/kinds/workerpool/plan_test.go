package workerpool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestOrderInWhichWorkersAreDrained(t *testing.T) {
	for title, test := range map[string]struct {
		change func(s *testPool)
		want   string
	}{
		"the youngest idle worker":                 {func(*testPool) {}, "worker:1-2"},
		"an idle worker before a younger busy one": {func(s *testPool) { s.withInFlight("worker:1-2", 3) }, "worker:1-1"},
		"the youngest busy worker": {
			func(s *testPool) {
				s.withInFlight("worker:1-0", 1).withInFlight("worker:1-1", 9).withInFlight("worker:1-2", 5)
			}, "worker:1-2",
		},
		"an unready worker before idle ones": {func(s *testPool) { s.changeWorker("worker:1-0", unready) }, "worker:1-0"},
		"an unassigned worker before all others": {
			func(s *testPool) {
				s.changeWorker("worker:1-1", unready).changeWorker("worker:1-0", unready).changeWorker("worker:1-0", func(w *Worker) { w.Assigned = false })
			}, "worker:1-0",
		},
		"a worker that does not respond after idle ones": {func(s *testPool) { s.changeWorker("worker:1-2", reportNothing) }, "worker:1-1"},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(3).withCurrentRevision(3).withReplicas(2)
			test.change(s)
			decision := Decide(s.Observation)
			got := workersWhere(&decision, func(d DrainState) bool { return d.DrainingSince.Equal(testTime) })
			require.Equal(t, []string{test.want}, got)
			require.True(t, s.plannedReplicas(&decision)[s.Revisions[0].Name] == 3, "the worker is removed before it is drained")
		})
	}
}

func TestMissingAnswerKeepsTheIdleTime(t *testing.T) {
	const name = "worker:1-1"
	s := newTestPool(2).withCurrentRevision(2).withReplicas(1).changeWorker(name, drainedSince(10*time.Second))
	s.Stats.InFlight = 1 // a message of a worker that no longer exists
	s.changeWorker(name, func(w *Worker) { w.Stats, w.IdleSince = nil, testTime.Add(-10*time.Second) })
	for _, mark := range Decide(s.Observation).DrainStates {
		require.True(t, mark.Worker != name || !mark.IdleSince.IsZero(), "the idle time is lost")
	}
	s.changeWorker(name, func(w *Worker) { w.Stats = &WorkerStats{Draining: true, InFlight: 1} })
	isBusy := func(d DrainState) bool { return d.Worker == name && d.IdleSince.IsZero() }
	require.True(t, slices.ContainsFunc(Decide(s.Observation).DrainStates, isBusy), "a worker with a message counts as idle")
}

func TestDrainingWorkerBecomesRemovable(t *testing.T) {
	const name = "worker:1-1"
	type change = func(*testPool)
	inFlight := func(messages int64) change { return func(s *testPool) { s.Stats.InFlight = messages } }
	withRetries := func(s *testPool) { s.Stats.InFlight, s.Stats.RetriesInFlight = 55, true }
	noStats := func(s *testPool) { s.Stats = nil }
	since := func(d time.Duration) change { return func(s *testPool) { s.changeWorker(name, drainedSince(d)) } }
	silent := func(s *testPool) { s.changeWorker(name, reportNothing) }
	busy := func(s *testPool) {
		s.withInFlight(name, 1).changeWorker(name, func(w *Worker) { w.Stats.Drained = false })
	}
	requeue := func(s *testPool) { s.Pool.Spec.Drain = &v1alpha1.Drain{OnTimeout: v1alpha1.DrainRequeue} }
	for title, test := range map[string]struct {
		changes []change
		want    bool
	}{
		"it has finished, and the broker counts nothing in flight": {nil, true},
		"it has a message in flight":                               {[]change{busy}, false},
		"another worker has the messages in flight":                {[]change{func(s *testPool) { s.withInFlight("worker:1-0", 2) }}, true},
		"another worker has prefetched the messages in flight": {
			[]change{inFlight(2), func(s *testPool) {
				s.changeWorker("worker:1-0", func(w *Worker) { w.Stats.InFlight, w.Stats.Prefetched = 1, 1 })
			}}, true,
		},
		"the broker counts more than the others report":                              {[]change{inFlight(1)}, false},
		"the broker counts more, but the worker is idle for a lease":                 {[]change{inFlight(1), since(30 * time.Second)}, true},
		"the broker counts more, and includes retries":                               {[]change{withRetries}, true},
		"it does not respond, and the broker counts retries for longer than a lease": {[]change{withRetries, since(time.Hour), silent}, false},
		"the broker does not respond":                                                {[]change{noStats}, false},
		"the broker does not respond after the drain timeout":                        {[]change{noStats, requeue, since(time.Hour)}, false},
		"it does not respond, and draining has just started":                         {[]change{silent}, false},
		"it does not respond, and the broker counts nothing for a lease":             {[]change{since(31 * time.Second), silent}, true},
		"it exceeds the drain timeout with onTimeout Wait":                           {[]change{since(time.Hour), busy}, false},
		"it exceeds the drain timeout with onTimeout Requeue":                        {[]change{requeue, since(time.Hour), busy}, true},
		"the source does not count messages in flight":                               {[]change{inFlight(7), func(s *testPool) { s.Stats.InFlightKnown = false }}, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(2).withCurrentRevision(2).withReplicas(1).changeWorker(name, drainedSince(10*time.Second))
			for _, change := range test.changes {
				change(s)
			}
			decision := Decide(s.Observation)
			require.Equal(t, test.want, len(workersWhere(&decision, func(d DrainState) bool { return d.Worker == name && !d.RemovableSince.IsZero() })) > 0)
		})
	}
}

func TestWorkerIsRemovedOnlyAfterItWasMarkedRemovable(t *testing.T) {
	const name = "worker:1-1"
	for title, test := range map[string]struct {
		change func(s *testPool)
		want   int32
	}{
		"it has just finished":           {func(s *testPool) { s.changeWorker(name, drainedSince(time.Minute)) }, 2},
		"it is marked":                   {func(s *testPool) { s.changeWorker(name, markedRemovable) }, 1},
		"it is marked, and needed again": {func(s *testPool) { s.changeWorker(name, markedRemovable).withReplicas(2) }, 1},
		"it is marked, but has a message in flight": {func(s *testPool) {
			s.changeWorker(name, markedRemovable).withInFlight(name, 1).changeWorker(name, func(w *Worker) { w.Stats.Drained = false })
		}, 2},
		"it is marked, but another one would be removed first": {func(s *testPool) {
			s.changeWorker(name, markedRemovable).changeWorker("worker:1-0", unready)
		}, 2},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(2).withCurrentRevision(2).withReplicas(1)
			test.change(s)
			decision := Decide(s.Observation)
			require.Equal(t, test.want, s.plannedReplicas(&decision)[s.Revisions[0].Name])
		})
	}
}

func TestDrainingWorkerIsUndrainedWhenItIsNeededAgain(t *testing.T) {
	s := newTestPool(3).withCurrentRevision(3).changeWorker("worker:1-2", drainedSince(time.Minute)).changeWorker("worker:1-1", drainedSince(time.Second))
	s.withReplicas(2)
	decision := Decide(s.Observation)
	require.Equal(t, []DrainRequest{{Worker: "worker:1-1"}}, decision.DrainRequests)
	require.Equal(t, 3, s.plannedReplicas(&decision)[s.Revisions[0].Name])
}

func TestTerminatingWorkerThatStillTakesMessagesIsAskedToStop(t *testing.T) {
	stop := []DrainRequest{{Worker: "worker:1-0", Drain: true, Stop: true}}
	for name, test := range map[string]struct {
		change func(*Worker)
		mode   v1alpha1.DrainMode
		want   []DrainRequest
	}{
		"it missed the signal":           {func(*Worker) {}, v1alpha1.DrainHTTP, stop},
		"it drains":                      {func(w *Worker) { w.Stats.Draining = true }, v1alpha1.DrainHTTP, nil},
		"it does not answer":             {reportNothing, v1alpha1.DrainHTTP, nil},
		"it is not terminating":          {func(w *Worker) { w.Terminating = false }, v1alpha1.DrainHTTP, nil},
		"the pool knows only the signal": {func(*Worker) {}, v1alpha1.DrainSignal, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestPool(1).withCurrentRevision(1)
			s.Pool.Spec.Drain = &v1alpha1.Drain{Mode: test.mode}
			s.changeWorker("worker:1-0", func(w *Worker) { w.Terminating = true }).changeWorker("worker:1-0", test.change)
			decision := Decide(s.Observation)
			require.Equal(t, test.want, decision.DrainRequests)
		})
	}
}

// A worker of a sidecar pool has finished. Its grace period is that of an evicted one.
func TestAWorkerThatHasFinishedEndsSoon(t *testing.T) {
	for title, row := range map[string]struct {
		change func(*testPool, *Worker)
		want   bool
	}{
		"its sidecar does not answer":      {func(_ *testPool, w *Worker) { w.Stats, w.Running = nil, false }, true},
		"its sidecar answers":              {func(*testPool, *Worker) {}, true},
		"of a pool that is deleted":        {func(s *testPool, _ *Worker) { withDeletionTimestamp(s) }, true},
		"of a StatefulSet":                 {func(s *testPool, _ *Worker) { s.Revisions[0].Ordered = true }, true},
		"it is terminating":                {func(_ *testPool, w *Worker) { w.Terminating = true }, false},
		"it drains":                        {func(_ *testPool, w *Worker) { w.RemovableSince = time.Time{} }, false},
		"it was stopped after its timeout": {func(_ *testPool, w *Worker) { w.IdleSince = time.Time{} }, false},
		"it reports a message":             {func(_ *testPool, w *Worker) { w.Stats.InFlight = 1 }, false},
		"it takes messages again":          {func(_ *testPool, w *Worker) { w.Stats.Drained = false }, false},
		"the stats are unknown":            {func(s *testPool, _ *Worker) { withoutStats(s) }, false},
		"the user has set its time":        {func(s *testPool, _ *Worker) { s.Pool.Spec.Drain.TerminationGrace = durationSeconds(600) }, false},
		"it has no sidecar":                {func(s *testPool, _ *Worker) { s.Revisions[0].SidecarImage = "" }, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(1)
			s.Operator.Image, s.Pool.Spec.Drain = "operator", &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar}
			s.withCurrentRevision(2)
			s.Revisions[0].SidecarImage = "operator"
			w := &s.Workers[1]
			w.Ordinal = 0
			markedRemovable(w)
			row.change(s, w)
			if s.Revisions[0].Ordered {
				w.Ordinal = 1
			}
			d := Decide(s.Observation)
			var finished []string
			for _, size := range d.Resizes {
				finished = append(finished, size.Finished...)
			}
			isIt := slices.Equal(finished, []string{w.Name})
			require.True(t, isIt == row.want && len(finished) > 0 == row.want, "ends %v, want it to end: %t; %+v", finished, row.want, d.Resizes)
		})
	}
}

func TestAWorkerThatHasFinishedLosesItsProtectionWithItsMark(t *testing.T) {
	for title, row := range map[string]struct {
		protection Protection
		want       bool
	}{
		"protected":           {Protection{Active: true, Written: testTime.Add(-time.Second)}, true},
		"not protected":       {Protection{}, false},
		"protected by a user": {Protection{Active: true, Foreign: true}, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestPool(0).withCurrentRevision(1)
			drainedSince(time.Minute)(&s.Workers[0])
			s.Workers[0].Protection = row.protection
			d := Decide(s.Observation)
			isMarked := len(d.DrainStates) == 1 && !d.DrainStates[0].RemovableSince.IsZero()
			require.True(t, isMarked && d.DrainStates[0].Unprotect == row.want, "%+v", d.DrainStates)
		})
	}
}

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
