package client

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
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
	failure := (*Error)(nil)
	require.True(env.t, errors.As(err, &failure) && failure.KeyHolder == holder && !IsRetryable(err), "%+v, want the holder %s", failure, holder)
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

func TestTheSameUniqueJobSentAgainIsADuplicateAndAnotherRejected(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		_, err := env.Enqueue(t.Context(), "nobody", nil, Unique("k"))
		requireError(t, err, ErrUnknownQueue, "queue")
		if _, err = env.Enqueue(t.Context(), "orders", nil, Unique("k"), Priority("none")); err == nil {
			t.Fatal("it was accepted")
		}
		// A rejected job does not keep the key.
		first := env.enqueue("1", ID("a"), Unique("k"))
		require.True(t, !first.Duplicate, "%+v", first)
		again := env.enqueue("1", ID("a"), Unique("k"))
		require.True(t, again.Duplicate && again.ID == "a", "%+v", again)
		env.requireTaken("a", ID("b"), Unique("k"))
		results, err := env.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil, Unique("k")), NewJob(nil), NewJob(nil, Unique("l"))})
		if !errors.Is(err, ErrKeyTaken) || !errors.Is(results[0].Err, ErrKeyTaken) || results[1].Err != nil || results[2].Err != nil {
			t.Errorf("%v: %+v", err, results)
		}
		env.requireTaken(results[2].ID, Unique("l"))
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
		_, err := store.WriteKey(t.Context(), "orders", key, []byte("2"), time.Hour, 0)
		require.ErrorIs(t, err, broker.ErrKeyChanged)
		second := write("2", time.Hour, first)
		if value, revision := read(); value != "2" || revision != second {
			t.Errorf("%q, %d", value, revision)
		}
		third := write("3", time.Second, second)
		require.True(t, third > second, "the revision %d follows %d", third, second)
		var value string
		var revision uint64
		poll.Until(t, "the key to expire", func() bool { value, revision = read(); return value == "" })
		write("4", time.Minute, revision)
	})
}
