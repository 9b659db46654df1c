package worker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// ratedWorkers are workers of a queue with a rate limit and a backlog.
type ratedWorkers struct {
	env       *testEnv
	workers   []*runningWorker
	startTime time.Time
	mu        sync.Mutex
	starts    []time.Time // of jobs
}

func withRateLimit(perSecond int) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: 1}
	}
}

func newRatedWorkers(t *testing.T, jobs, perSecond int) *ratedWorkers {
	t.Helper()
	w := &ratedWorkers{env: newTestEnv(t, withRateLimit(perSecond)), startTime: time.Now()}
	w.env.Send(numberedPayloads(jobs)...)
	return w
}

func (w *ratedWorkers) handle(context.Context, *Job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts = append(w.starts, time.Now())
	return nil
}

func (w *ratedWorkers) scale(t *testing.T, n int) {
	t.Helper()
	for len(w.workers) < n {
		w.workers = append(w.workers, w.env.start(w.env.config(), w.handle))
	}
	for len(w.workers) > n {
		requireCleanShutdown(t, w.workers[0])
		w.workers = w.workers[1:]
	}
}

func (w *ratedWorkers) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.starts)
}

// Workers start and stop while a backlog waits, and do not have a limit each. With BENCH set, on an otherwise idle machine, the limit is
// lowered too, on the broker only, and every 10 s window must stay within 5 % of the limit.
func TestRateLimitHoldsAcrossWorkersWhileTheyScaleAndTheLimitChanges(t *testing.T) {
	if os.Getenv("BENCH") != "" {
		measureRates(t)
		return
	}
	const perSecond, jobs = 100, 1000
	w := newRatedWorkers(t, jobs, perSecond)
	for _, phase := range []struct{ workers, jobs int }{{1, 40}, {5, 40}, {20, 300}, {3, 40}} {
		w.scale(t, phase.workers)
		next := min(w.started()+phase.jobs, jobs)
		poll.Until(t, "jobs to start", func() bool { return w.started() >= next })
	}
	w.scale(t, 0)
	slices.SortFunc(w.starts, time.Time.Compare)
	for i, start := range w.starts {
		// Workers without processor time know the clock of the broker inexactly.
		earliest := w.startTime.Add(time.Duration(i)*time.Second/perSecond*2/3 - 500*time.Millisecond)
		require.True(t, !start.Before(earliest), "job %d of %d starts %s too early", i, len(w.starts), earliest.Sub(start))
	}
}

func measureRates(t *testing.T) {
	t.Helper()
	w := newRatedWorkers(t, 4000, 100)
	startTime := time.Now()
	for _, n := range []int{1, 5, 20, 8, 15, 3, 20} {
		w.scale(t, n)
		time.Sleep(2 * time.Second)
	}
	changeStart := time.Now()
	queuetest.Ensure(t, w.env.Engine, "orders", withRateLimit(50))
	changeEnd := time.Now()
	for _, n := range []int{20, 10, 1, 7, 20, 12} {
		w.scale(t, n)
		time.Sleep(2 * time.Second)
	}
	end := time.Now()
	w.scale(t, 0)

	slices.SortFunc(w.starts, time.Time.Compare)
	table := "jobs started in any 10 s\n  limit  fewest  most  allowed\n"
	checkRate := func(from, to time.Time, perSecond int) {
		fewest, most := countWindows(w.starts, from, to)
		want := perSecond * int(rateWindow/time.Second)
		least, greatest := want*95/100, want*105/100
		table += fmt.Sprintf("%5d/s  %6d  %4d  %d to %d\n", perSecond, fewest, most, least, greatest)
		if most > greatest || fewest < least {
			t.Errorf("%d to %d jobs start in 10 s, the limit is %d", fewest, most, want)
		}
	}
	checkRate(startTime.Add(time.Second), changeStart, 100) // the first worker needs time to connect
	checkRate(changeEnd, end, 50)
	t.Log(table)
}

// rateWindow is the period over which the rate is measured.
const rateWindow = 10 * time.Second

// countWindows counts the sorted times in every window between two times, and returns the
// lowest and the highest count.
func countWindows(times []time.Time, from, to time.Time) (fewest, most int) {
	fewest = len(times)
	for at := from; !at.Add(rateWindow).After(to); at = at.Add(100 * time.Millisecond) {
		first, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
		last, _ := slices.BinarySearchFunc(times, at.Add(rateWindow), time.Time.Compare)
		fewest, most = min(fewest, last-first), max(most, last-first)
	}
	return fewest, most
}
