package worker

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Workers come and go while a backlog waits, and the limit is lowered without any of
// them being told but by the broker. In no 10 s does more than the limit and 5 % of it
// begin, nor less than 95 %.
func TestTheRateLimitHoldsOverAllWorkersWhileTheyScaleAndItChanges(t *testing.T) {
	limit := func(perSecond int) func(*broker.Queue) {
		return func(q *broker.Queue) {
			q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: 1}
		}
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
	changed := time.Now()
	b.queue("orders", limit(50))
	for _, n := range []int{20, 10, 1, 7, 20, 12} {
		scale(n)
		time.Sleep(2 * time.Second)
	}
	end := time.Now()
	scale(0)

	slices.SortFunc(begun, time.Time.Compare)
	check := func(from, to time.Time, perSecond int) {
		t.Helper()
		const window = 10 * time.Second
		least, most := 1<<30, 0
		for at := from; !at.Add(window).After(to); at = at.Add(100 * time.Millisecond) {
			first, _ := slices.BinarySearchFunc(begun, at, time.Time.Compare)
			last, _ := slices.BinarySearchFunc(begun, at.Add(window), time.Time.Compare)
			least, most = min(least, last-first), max(most, last-first)
		}
		want := perSecond * int(window/time.Second)
		t.Logf("limit %d/s: %d to %d in 10 s", perSecond, least, most)
		if most > want*105/100 || least < want*95/100 {
			t.Errorf("in 10 s %d to %d jobs begin, the limit is %d", least, most, want)
		}
	}
	check(start.Add(time.Second), changed, 100) // a worker needs a moment to connect
	check(changed, end, 50)
}
