package client

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// requireTaken fails the test unless the key of a job is that of the holder.
func (env *testEnv) requireTaken(holder string, options ...Option) {
	env.t.Helper()
	_, err := env.Enqueue(env.t.Context(), "orders", nil, options...)
	env.requireHolder(err, holder)
}

// requireHolder fails the test unless err says that the key of a job is that of the holder.
func (env *testEnv) requireHolder(err error, holder string) {
	env.t.Helper()
	requireError(env.t, err, ErrKeyTaken, "unique")
	if failure := (*Error)(nil); !errors.As(err, &failure) || failure.KeyHolder != holder || IsRetryable(err) {
		env.t.Errorf("%+v, want the holder %s", failure, holder)
	}
}

func TestAUniqueJobKeepsItsKeyUntilItIsDone(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		first := env.enqueue("first", Unique("invoice/7"))
		env.requireTaken(first.ID, Unique("invoice/7"))
		env.enqueue("other", Unique("invoice/8"))
		proceed := make(chan struct{})
		mux := worker.NewMux()
		mux.HandleUnknown(func(_ context.Context, job *worker.Job) error {
			if string(job.Payload) == "first" {
				<-proceed
			}
			return nil
		})
		env.runWorker(mux)
		env.requireTaken(first.ID, Unique("invoice/7"))
		close(proceed)
		var second Receipt
		poll.Until(t, "the key to be free", func() (accepted bool) {
			var err error
			second, err = env.Enqueue(t.Context(), "orders", nil, Unique("invoice/7"))
			return err == nil
		})
		if second.ID == first.ID || second.Duplicate {
			t.Errorf("%+v", second)
		}
	})
}

func TestADeadJobReleasesItsKeyAndOneThatIsRetriedDoesNot(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		first := env.enqueue("1", ID("a"), Unique("k"))
		var isTried, isDead atomic.Bool
		mux := worker.NewMux()
		mux.HandleUnknown(func(context.Context, *worker.Job) error {
			isTried.Store(true)
			if isDead.Load() {
				return worker.DeadLetter("bad")
			}
			return worker.Retry(time.Second)
		})
		env.runWorker(mux)
		poll.Until(t, "the job to be tried", isTried.Load)
		env.requireTaken(first.ID, Unique("k"))
		isDead.Store(true)
		poll.Until(t, "the key to be free", func() bool {
			_, err := env.Enqueue(t.Context(), "orders", nil, Unique("k"))
			return err == nil
		})
	})
}

func TestACanceledDelayedJobReleasesItsKey(t *testing.T) {
	onEachEngineWithResults(t, func(t *testing.T, env *testEnv) {
		for _, cancel := range []func(id string) error{
			func(id string) error { _, err := env.CancelDelayed(t.Context(), "orders", id); return err },
			func(id string) error { _, err := env.Cancel(t.Context(), "orders", id); return err },
		} {
			first := env.enqueue("1", Unique("k"), Delay(time.Hour))
			env.requireTaken(first.ID, Unique("k"))
			require.NoError(t, cancel(first.ID))
		}
		env.enqueue("2", Unique("k"))
	})
}

func TestAWindowKeepsAKeyAlsoAfterTheJobIsDone(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		log := &jobLog{}
		env.runWorker(log.mux())
		for window := 3 * time.Second; ; window *= 2 {
			key, startTime := window.String(), time.Now()
			first := env.enqueue(key, UniqueFor(key, window))
			poll.Until(t, "the job to be done", func() bool { return slices.Contains(log.payloads(), key) })
			_, errWindow := env.Enqueue(t.Context(), "orders", nil, UniqueFor(key, window))
			_, errUntilDone := env.Enqueue(t.Context(), "orders", nil, Unique(key))
			if time.Since(startTime) >= window {
				continue // on a busy machine
			}
			env.requireHolder(errWindow, first.ID)
			env.requireHolder(errUntilDone, first.ID)
			poll.Until(t, "the window to be over", func() bool {
				_, err := env.Enqueue(t.Context(), "orders", nil, UniqueFor(key, window))
				return err == nil
			})
			return
		}
	})
}

func TestTheSameUniqueJobSentAgainIsADuplicate(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		if first := env.enqueue("1", ID("a"), Unique("k")); first.Duplicate {
			t.Errorf("%+v", first)
		}
		if again := env.enqueue("1", ID("a"), Unique("k")); !again.Duplicate || again.ID != "a" {
			t.Errorf("%+v", again)
		}
		env.requireTaken("a", ID("b"), Unique("k"))
	})
}

func TestARejectedJobDoesNotKeepItsKey(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		_, err := env.Enqueue(t.Context(), "nobody", nil, Unique("k"))
		requireError(t, err, ErrUnknownQueue, "queue")
		_, err = env.Enqueue(t.Context(), "orders", nil, Unique("k"), Priority("none"))
		if err == nil {
			t.Fatal("it was accepted")
		}
		env.enqueue("1", Unique("k"))
	})
}

func TestAKeyOrAWindowThatIsInvalidIsRejected(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		for _, key := range []string{"", " ", "ö", string(make([]byte, 200))} {
			_, err := env.Enqueue(t.Context(), "orders", nil, Unique(key))
			requireError(t, err, ErrInvalid, "unique")
		}
		_, err := env.Enqueue(t.Context(), "orders", nil, UniqueFor("k", time.Millisecond))
		requireError(t, err, ErrInvalid, "uniqueFor")
	})
}

func TestEnqueueManyReturnsWhichKeysAreTaken(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		first := env.enqueue("1", Unique("a"))
		results, err := env.EnqueueMany(t.Context(), "orders", []Job{
			NewJob(nil, Unique("a")), NewJob(nil), NewJob(nil, Unique("b")),
		})
		if !errors.Is(err, ErrKeyTaken) || !errors.Is(results[0].Err, ErrKeyTaken) || results[1].Err != nil || results[2].Err != nil {
			t.Errorf("%v: %+v", err, results)
		}
		env.requireTaken(first.ID, Unique("a"))
		env.requireTaken(results[2].ID, Unique("b"))
	})
}

// expireKey makes a key of the queue expire.
func (env *testEnv) expireKey(key broker.Key) {
	env.t.Helper()
	store := env.producer.(broker.KeyStore)
	_, revision, err := store.ReadKey(env.t.Context(), "orders", key)
	if err == nil {
		_, err = store.WriteKey(env.t.Context(), "orders", key, []byte("{}"), time.Second, revision)
	}
	require.NoError(env.t, err)
	poll.Until(env.t, "the key to expire", func() bool {
		value, _, err := store.ReadKey(env.t.Context(), "orders", key)
		return err == nil && value == nil
	})
}

// TestAJobWhoseKeyWasTakenMeanwhileRunsAfterTheOther deletes the lock of a job that waits, as if its 24 hours were over.
func TestAJobWhoseKeyWasTakenMeanwhileRunsAfterTheOther(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		env.enqueue("1", Unique("k"))
		env.expireKey(broker.Key{Kind: broker.UniqueKey, Name: "k"})
		env.enqueue("2", Unique("k"))
		var running, most, done atomic.Int32
		mux := worker.NewMux()
		mux.HandleUnknown(func(context.Context, *worker.Job) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(100 * time.Millisecond)
			running.Add(-1)
			done.Add(1)
			return nil
		})
		env.runWorker(mux)
		poll.Until(t, "both jobs to be done", func() bool { return done.Load() == 2 })
		if most.Load() != 1 {
			t.Error("both ran at the same time")
		}
	})
}

func TestAKeyWithAReservationThatIsNotConfirmedIsWaitedFor(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		store := env.producer.(broker.KeyStore)
		key := broker.Key{Kind: broker.UniqueKey, Name: "k"}
		revision, err := store.WriteKey(t.Context(), "orders", key, []byte(`{"id":"lost","holder":"h"}`), time.Hour, 0)
		require.NoError(t, err)
		poll.Until(t, "a call to read the key before its timeout", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = env.Enqueue(ctx, "orders", nil, Unique("k"))
			failure := (*Error)(nil)
			return !errors.As(err, &failure) || failure.Field != ""
		})
		requireError(t, err, ErrUnavailable, "unique")
		time.AfterFunc(100*time.Millisecond, func() {
			_, _ = store.WriteKey(context.Background(), "orders", key, []byte("{}"), time.Second, revision)
		})
		env.enqueue("1", Unique("k"))
	})
}

func TestTheKeyStoreOfEachEngineComparesRevisionsAndExpires(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		store := env.producer.(broker.KeyStore)
		key := broker.Key{Kind: broker.BatchKey, Name: "a b/ö."}
		read := func() (string, uint64) {
			t.Helper()
			value, revision, err := store.ReadKey(t.Context(), "orders", key)
			require.NoError(t, err)
			return string(value), revision
		}
		write := func(value string, expiry time.Duration, revision uint64) uint64 {
			t.Helper()
			written, err := store.WriteKey(t.Context(), "orders", key, []byte(value), expiry, revision)
			require.NoError(t, err)
			return written
		}
		if value, revision := read(); value != "" || revision != 0 {
			t.Errorf("%q, %d", value, revision)
		}
		first := write("1", time.Hour, 0)
		if _, err := store.WriteKey(t.Context(), "orders", key, []byte("2"), time.Hour, 0); !errors.Is(err, broker.ErrKeyChanged) {
			t.Errorf("%v", err)
		}
		second := write("2", time.Hour, first)
		if value, revision := read(); value != "2" || revision != second {
			t.Errorf("%q, %d", value, revision)
		}
		third := write("3", time.Second, second)
		if third <= second {
			t.Errorf("the revision %d follows %d", third, second)
		}
		var value string
		var revision uint64
		poll.Until(t, "the key to expire", func() bool { value, revision = read(); return value == "" })
		write("4", time.Minute, revision)
	})
}
