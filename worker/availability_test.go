package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
)

func TestAWorkerTakesNothingWhileItsHandlerIsUnavailable(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	var isAvailable, isRefusing atomic.Bool
	var done jobLog
	w := env.startWithOptions(Options{Config: env.config(), Available: func(context.Context) error {
		if !isAvailable.Load() {
			return errors.New("it does not listen")
		}
		return nil
	}}, func(_ context.Context, job *Job) error {
		if isRefusing.Load() {
			isAvailable.Store(false)
			return fmt.Errorf("refused: %w", Snooze(time.Millisecond))
		}
		done.add(job)
		return nil
	})
	wantNothingTaken := func(when string, waiting int64) {
		t.Helper()
		poll.Until(t, "the reason "+when+", and all jobs to be given back", func() bool {
			s := w.Stats()
			return s.Unavailable == "it does not listen" && !s.Attached && s.InFlight+s.Prefetched == 0
		})
		before := w.Stats().Snoozed
		observations := 0
		poll.Until(t, "more observations "+when, func() bool {
			if s, stats := w.Stats(), env.stats(); s.InFlight+s.Prefetched > 0 || s.Snoozed != before || stats.Ready+stats.InFlight != waiting {
				t.Fatalf("%s: %+v, on the broker %+v", when, s, stats)
			}
			observations++
			return observations == 20
		})
	}
	env.send("default", numberedPayloads(5)...)
	wantNothingTaken("at the start", 5)
	isAvailable.Store(true)
	poll.Until(t, "all jobs to be done", func() bool { return done.count() == 5 && env.isEmpty() })

	isAvailable.Store(false)
	poll.Until(t, "the worker to be held", func() bool { return w.Stats().Unavailable != "" })
	env.send("default", numberedPayloads(5)...)
	wantNothingTaken("while idle", 5)

	isRefusing.Store(true)
	isAvailable.Store(true)
	poll.Until(t, "a job to be snoozed", func() bool { return w.Stats().Snoozed > 0 })
	wantNothingTaken("after a job was refused", 5)
	isRefusing.Store(false)
	isAvailable.Store(true)
	poll.Until(t, "the rest to be done", func() bool { return done.count() == 10 && env.isEmpty() })
	requireCleanShutdown(t, w)
}

func TestReturnedMessagesCountUntilTheyAreDue(t *testing.T) {
	var r returnedMessages
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, delay := range []time.Duration{0, 2 * time.Second, time.Minute, time.Hour} {
		r.add(now, delay)
	}
	for after, want := range map[time.Duration]int{0: 2, 2 * time.Second: 2, 4 * time.Second: 1, 62 * time.Second: 0} {
		counted := returnedMessages{due: maps.Clone(r.due)}
		if got := counted.count(now.Add(after)); got != want {
			t.Errorf("%d after %s, want %d", got, after, want)
		}
	}
}
