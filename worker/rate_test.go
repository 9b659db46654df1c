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
)

// Workers come and go while a backlog waits, and the limit is lowered without any of
// them being told but by the broker. As a measurement, with BENCH set and nothing beside it:
// in no 10 s does more than the limit and 5 % of it begin, nor less than 95 %. As a test, on a
// machine that does other work and may hold up anything for a while: 20 %.
func TestTheRateLimitHoldsOverAllWorkersWhileTheyScaleAndItChanges(t *testing.T) {
	limit := func(perSecond int) func(*broker.QueueConfig) {
		return func(q *broker.QueueConfig) {
			q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: 1}
		}
	}
	tolerance := 20
	if os.Getenv("BENCH") != "" {
		tolerance = 5
	}
	b := newBench(t, limit(100))
	b.send("default", numbered(4000)...)
	var (
		mu    sync.Mutex
		begun []time.Time
	)
	handler := func(context.Context, *Job) error {
		mu.Lock()
		begun = append(begun, time.Now())
		mu.Unlock()
		return nil
	}
	var workers []*started
	scale := func(n int) {
		for len(workers) < n {
			workers = append(workers, b.start(b.config(), handler))
		}
		for len(workers) > n {
			if err := workers[0].end(t); err != nil {
				t.Error(err)
			}
			workers = workers[1:]
		}
	}
	start := time.Now()
	for _, n := range []int{1, 5, 20, 8, 15, 3, 20} {
		scale(n)
		time.Sleep(2 * time.Second)
	}
	changing := time.Now()
	b.queue("orders", limit(50))
	changed := time.Now()
	for _, n := range []int{20, 10, 1, 7, 20, 12} {
		scale(n)
		time.Sleep(2 * time.Second)
	}
	end := time.Now()
	scale(0)

	slices.SortFunc(begun, time.Time.Compare)
	table := "in any 10 s, how many began\n  limit  fewest  most  must be\n"
	check := func(from, to time.Time, perSecond int) {
		t.Helper()
		fewest, most := countWindows(begun, from, to)
		want := perSecond * int(rateWindow/time.Second)
		least, greatest := want*(100-tolerance)/100, want*(100+tolerance)/100
		table += fmt.Sprintf("%5d/s  %6d  %4d  %d to %d\n", perSecond, fewest, most, least, greatest)
		if most > greatest || fewest < least {
			t.Errorf("in 10 s %d to %d jobs begin, the limit is %d", fewest, most, want)
		}
	}
	check(start.Add(time.Second), changing, 100) // a worker needs a moment to connect
	check(changed, end, 50)
	t.Log(table)
}

// rateWindow is the time in which a limit is kept to.
const rateWindow = 10 * time.Second

// countWindows is how many of those times, which are in order, fall into a window, of all
// windows from a time to another: the fewest and the most.
func countWindows(times []time.Time, from, to time.Time) (fewest, most int) {
	fewest = len(times)
	for at := from; !at.Add(rateWindow).After(to); at = at.Add(100 * time.Millisecond) {
		first, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
		last, _ := slices.BinarySearchFunc(times, at.Add(rateWindow), time.Time.Compare)
		fewest, most = min(fewest, last-first), max(most, last-first)
	}
	return fewest, most
}
