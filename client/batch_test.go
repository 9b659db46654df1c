package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// jobLog has the payloads of the jobs that ran, in their order.
type jobLog struct {
	mu  sync.Mutex
	ran []string
}

func (l *jobLog) payloads() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ran)
}

// handle succeeds, except for payloads that begin with dead.
func (l *jobLog) handle(_ context.Context, job *worker.Job) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran = append(l.ran, string(job.Payload))
	if string(job.Payload) == "dead" {
		return worker.DeadLetter("bad")
	}
	return nil
}

func (l *jobLog) mux() *worker.Mux {
	mux := worker.NewMux()
	mux.HandleUnknown(l.handle)
	return mux
}

func batchOf(payloads ...string) (jobs []Job) {
	for _, payload := range payloads {
		jobs = append(jobs, NewJob([]byte(payload)))
	}
	return jobs
}

func (env *testEnv) enqueueBatch(jobs []Job, final Job) Receipt {
	env.t.Helper()
	return require.Call(env.EnqueueBatch(env.t.Context(), "orders", jobs, final)).Succeeds(env.t)
}

func (env *testEnv) requireBatch(id string, want BatchInfo) {
	env.t.Helper()
	info := require.Call(env.Batch(env.t.Context(), "orders", id)).Succeeds(env.t)
	want.ID, info.SentTime = id, time.Time{}
	assert.Equal(env.t, "the batch", want, info)
}

func (env *testEnv) waitForBatch(id string, state BatchState) {
	env.t.Helper()
	poll.Until(env.t, "the batch to be "+string(state), func() bool {
		info, err := env.Batch(env.t.Context(), "orders", id)
		return err == nil && info.State == state
	})
}

// The batch has as many jobs as it can have.
func TestTheFinalJobOfTheLargestBatchRunsOnceAfterAllOthersHaveEnded(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		receipt := env.enqueueBatch(batchOf(append(slices.Repeat([]string{"a"}, MaxBatchJobs-1), "dead")...), NewJob([]byte("final")))
		env.requireBatch(receipt.ID, BatchInfo{State: BatchRunning, Total: MaxBatchJobs})
		log, started := &jobLog{}, time.Now()
		env.runWorker(log.mux())
		env.waitForBatch(receipt.ID, BatchDone)
		t.Logf("%d jobs in %s", MaxBatchJobs, time.Since(started))
		env.requireBatch(receipt.ID, BatchInfo{State: BatchDone, Total: MaxBatchJobs, Ended: MaxBatchJobs, Failed: 1})
		ran := log.payloads()
		require.True(t, len(ran) == MaxBatchJobs+1 && ran[MaxBatchJobs] == "final", "%d jobs ran, the last was %s", len(ran), ran[len(ran)-1])
	})
}

func TestACanceledJobOfABatchHasEnded(t *testing.T) {
	onEachEngineWithResults(t, func(t *testing.T, env *testEnv) {
		env.enqueueBatch(batchOf("a", "b"), NewJob([]byte("final"), ID("x")))
		require.Call(env.Cancel(t.Context(), "orders", "x:0")).Succeeds(t)
		log := &jobLog{}
		env.runWorker(log.mux())
		env.waitForBatch("x", BatchDone)
		env.requireBatch("x", BatchInfo{State: BatchDone, Total: 2, Ended: 2, Failed: 1})
		require.Equal(t, []string{"b", "final"}, log.payloads())
	})
}

// TestABatchWhoseProducerDiedIsIncompleteUntilItIsSentAgain stores what a producer that died has stored.
func TestABatchWhoseProducerDiedIsIncompleteUntilItIsSentAgain(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		jobs, final := batchOf("a", "b", "c"), NewJob([]byte("final"), ID("x"))
		b, err := env.newBatch("orders", jobs, final)
		if err == nil {
			_, err = env.openBatch(t.Context(), b)
		}
		if err == nil {
			_, err = env.EnqueueMany(t.Context(), "orders", b.jobs[:2])
		}
		require.NoError(t, err)
		log := &jobLog{}
		env.runWorker(log.mux())
		poll.Until(t, "two jobs to end", func() bool {
			info, err := env.Batch(t.Context(), "orders", "x")
			return err == nil && info.Ended == 2
		})
		env.requireBatch("x", BatchInfo{State: BatchIncomplete, Total: 3, Ended: 2})
		receipt := env.enqueueBatch(jobs, final)
		require.True(t, receipt.ID == "x" && !receipt.Duplicate, "%+v", receipt)
		env.waitForBatch("x", BatchDone)
		slices.Sort(log.ran)
		require.Equal(t, []string{"a", "b", "c", "final"}, log.payloads())
		require.True(t, env.enqueueBatch(jobs, final).Duplicate, "a batch that is done is no duplicate")
		_, err = env.EnqueueBatch(t.Context(), "orders", jobs[:1], final)
		requireError(t, err, ErrInvalid, "id")
	})
}

func TestTwoProducersOfABatchSendItOnce(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		failures := make(chan error)
		for range 2 {
			go func() {
				_, err := env.EnqueueBatch(t.Context(), "orders", batchOf("a", "b", "c"), NewJob([]byte("final"), ID("x")))
				failures <- err
			}()
		}
		for range 2 {
			require.NoError(t, <-failures)
		}
		log := &jobLog{}
		env.runWorker(log.mux())
		env.waitForBatch("x", BatchDone)
		ran := log.payloads()
		require.True(t, len(ran) == 4 && ran[3] == "final", "%v ran", ran)
	})
}

func TestTheFinalJobOfABatchThatHasExpiredIsADeadLetter(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		env.enqueueBatch(batchOf("a"), NewJob([]byte("final"), ID("x")))
		env.expireKey(broker.Key{Kind: broker.BatchKey, Name: "x"})
		env.requireBatch("x", BatchInfo{State: BatchUnknown})
		log := &jobLog{}
		env.runWorker(log.mux())
		poll.Until(t, "the final job to be a dead letter", func() bool { return env.Stats().DeadLetters == 1 })
		require.Equal(t, []string{"a"}, log.payloads())
		require.Call(env.Engine.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})).Succeeds(t)
		poll.Until(t, "the final job to run after it was requeued", func() bool { return slices.Contains(log.payloads(), "final") })
	})
}

func TestABatchThatIsInvalidIsRejectedBeforeAJobIsSent(t *testing.T) {
	onEachEngine(t, func(t *testing.T, env *testEnv) {
		final := NewJob(nil)
		for field, row := range map[string]struct {
			jobs  []Job
			final Job
		}{
			"jobs":                 {nil, final},
			"jobs[1].unique":       {[]Job{final, NewJob(nil, Unique("k"))}, final},
			"jobs[0].delay":        {[]Job{NewJob(nil, Delay(time.Second))}, final},
			"jobs[0].id":           {[]Job{NewJob(nil, ID("a"))}, final},
			"jobs[0].timeout":      {[]Job{NewJob(nil, Timeout(1))}, final},
			"final.delay":          {batchOf("a"), NewJob(nil, At(time.Now().Add(time.Hour)))},
			"final.id":             {batchOf("a"), NewJob(nil, ID(fmt.Sprintf("%0125d", 1)))},
			"final.deduplicateFor": {batchOf("a"), NewJob(nil, ID("a"), DeduplicateFor(1))},
		} {
			_, err := env.EnqueueBatch(t.Context(), "orders", row.jobs, row.final)
			requireError(t, err, ErrInvalid, field)
		}
		_, err := env.EnqueueBatch(t.Context(), "orders", make([]Job, MaxBatchJobs+1), final)
		requireError(t, err, ErrInvalid, "jobs")
		_, err = env.EnqueueBatch(t.Context(), "nobody", batchOf("a"), final)
		requireError(t, err, ErrUnknownQueue, "queue")
		require.Equal(t, 0, env.Stats().Ready)
	})
}

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
		_, err = env.Enqueue(t.Context(), "orders", nil, Unique("k"), Priority("none"))
		require.True(t, err != nil, "it was accepted")
		// A rejected job does not keep the key.
		first := env.enqueue("1", ID("a"), Unique("k"))
		require.True(t, !first.Duplicate, "%+v", first)
		again := env.enqueue("1", ID("a"), Unique("k"))
		require.True(t, again.Duplicate && again.ID == "a", "%+v", again)
		env.requireTaken("a", ID("b"), Unique("k"))
		results, err := env.EnqueueMany(t.Context(), "orders", []Job{NewJob(nil, Unique("k")), NewJob(nil), NewJob(nil, Unique("l"))})
		isTaken := errors.Is(err, ErrKeyTaken) && errors.Is(results[0].Err, ErrKeyTaken)
		require.True(t, isTaken && results[1].Err == nil && results[2].Err == nil, "%v: %+v", err, results)
		env.requireTaken(results[2].ID, Unique("l"))
	})
}

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
			return require.Call(store.WriteKey(t.Context(), "orders", key, []byte(value), expiry, revision)).Succeeds(t)
		}
		value, revision := read()
		require.True(t, value == "" && revision == 0, "%q, %d", value, revision)
		first := write("1", time.Hour, 0)
		_, err := store.WriteKey(t.Context(), "orders", key, []byte("2"), time.Hour, 0)
		require.ErrorIs(t, err, broker.ErrKeyChanged)
		second := write("2", time.Hour, first)
		value, revision = read()
		require.True(t, value == "2" && revision == second, "%q, %d", value, revision)
		third := write("3", time.Second, second)
		require.True(t, third > second, "the revision %d follows %d", third, second)
		poll.Until(t, "the key to expire", func() bool { value, revision = read(); return value == "" })
		write("4", time.Minute, revision)
	})
}
