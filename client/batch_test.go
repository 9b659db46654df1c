package client

import (
	"context"
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
	receipt, err := env.EnqueueBatch(env.t.Context(), "orders", jobs, final)
	require.NoError(env.t, err)
	return receipt
}

func (env *testEnv) requireBatch(id string, want BatchInfo) {
	env.t.Helper()
	info, err := env.Batch(env.t.Context(), "orders", id)
	require.NoError(env.t, err)
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
		_, err := env.Cancel(t.Context(), "orders", "x:0")
		require.NoError(t, err)
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
		if receipt := env.enqueueBatch(jobs, final); !receipt.Duplicate {
			t.Errorf("%+v", receipt)
		}
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
		_, err := env.Engine.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{})
		require.NoError(t, err)
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
