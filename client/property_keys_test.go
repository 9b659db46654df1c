package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// keyPlans are those of jobs that always end.
var keyPlans = []string{"", "0s", "50ms", "300ms", "dead", "flaky"}

func (r *randomRound) keyPlan() []byte { return []byte(keyPlans[r.random.IntN(len(keyPlans))]) }

// uniqueKeys is the number of keys in a round.
const uniqueKeys = 12

func uniqueKey(number int) string { return fmt.Sprintf("key/%d", number) }

// enqueueUnique sends unique jobs, with and without an ID. It repeats a call with an ID whose result is unknown.
func (r *randomRound) enqueueUnique(number int) {
	for range number {
		key := uniqueKey(r.random.IntN(uniqueKeys))
		options := []Option{Unique(key)}
		hasID := r.random.IntN(2) == 0
		if hasID {
			options = append(options, ID(fmt.Sprintf("unique.%d", r.uniqueCalls)))
		}
		r.uniqueCalls++
		for range 10 {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			receipt, err := r.Enqueue(ctx, "orders", r.keyPlan(), options...)
			cancel()
			if err == nil {
				r.requireAcceptable(receipt.ID, key)
			}
			if !hasID || !IsRetryable(err) {
				break
			}
		}
	}
}

// requireAcceptable checks that no other accepted job has the key.
func (r *randomRound) requireAcceptable(id, key string) {
	history := readHistory(r.t, r.log)
	for other, taken := range r.accepted {
		if taken == key && other != id && !hasEnded(history[other]) {
			r.t.Errorf("%s was accepted while %s has the key %s: %q", id, other, key, history[other])
		}
	}
	r.accepted[id] = key
}

// hasEnded reports whether a handler has decided about a job.
func hasEnded(events []string) bool {
	return slices.ContainsFunc(events, func(event string) bool { return event == "dead" || strings.HasPrefix(event, "done ") })
}

// requireUnique checks, when nothing runs any more, that all accepted jobs ran, that no two with a key ran at the same time,
// and that all keys are free.
func (r *randomRound) requireUnique() {
	history := readHistory(r.t, r.log)
	for id := range r.accepted {
		require.True(r.t, hasEnded(history[id]), "%s was accepted, and has not ended: %q", id, history[id])
	}
	for number := range uniqueKeys {
		value, _, err := r.producer.(broker.KeyStore).ReadKey(r.t.Context(), "orders", broker.Key{Kind: broker.UniqueKey, Name: uniqueKey(number)})
		lock := jobstate.DecodeLock(value)
		require.True(r.t, err == nil && (lock == nil || !lock.Confirmed), "the key %d is taken, %v: %+v", number, err, lock)
	}
	raw, err := os.ReadFile(r.log)
	require.NoError(r.t, err)
	starts := requireExclusive(r, strings.Split(string(raw), "\n"))
	r.t.Logf("%d unique jobs of %d calls were accepted, with %d attempts", len(r.accepted), r.uniqueCalls, starts)
}

// requireExclusive returns the number of attempts. A worker that is killed no longer runs its jobs.
func requireExclusive(r *randomRound, log []string) (starts int) {
	const withKey, withProcess = 4, 3
	running := map[string]map[string]string{} // the processes of the jobs of each key
	for _, line := range log {
		words := strings.Fields(line)
		switch {
		case len(words) == withKey && words[1] == "start":
			key := words[3]
			if running[key] == nil {
				running[key] = map[string]string{}
			}
			running[key][words[0]] = words[2]
			starts++
			require.True(r.t, len(running[key]) <= 1, "jobs with the key %s run at the same time: %v", key, running[key])
		case len(words) == withProcess && words[1] == "end":
			for _, jobs := range running {
				delete(jobs, words[0])
			}
		case len(words) == withProcess && words[1] == "killed":
			for _, jobs := range running {
				for id, process := range jobs {
					if process == words[2] {
						delete(jobs, id)
					}
				}
			}
		}
	}
	return starts
}

// randomBatch is a batch whose producer may have died.
type randomBatch struct {
	id    string
	total int
	// isSent: EnqueueBatch has succeeded.
	isSent bool
}

// enqueueBatch sends a batch. It repeats the call until it succeeds, or sends a part of the jobs only.
func (r *randomRound) enqueueBatch(total int) {
	b := &randomBatch{id: fmt.Sprintf("batch.%d", len(r.batches)), total: total}
	r.batches = append(r.batches, b)
	var jobs []Job
	for range total {
		jobs = append(jobs, NewJob(r.keyPlan()))
	}
	final := NewJob(nil, ID(b.id))
	if r.random.IntN(4) == 0 {
		r.enqueuePart(jobs, final)
		return
	}
	poll.Until(r.t, b.id+" to be stored", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		_, err := r.EnqueueBatch(ctx, "orders", jobs, final)
		require.True(r.t, err == nil || errors.Is(err, ErrUnavailable), "%v", err)
		b.isSent = err == nil
		return b.isSent
	})
}

// enqueuePart does what a producer does that dies before it has sent the final job.
func (r *randomRound) enqueuePart(jobs []Job, final Job) {
	b, err := r.newBatch("orders", jobs, final)
	require.NoError(r.t, err)
	if _, err := r.openBatch(r.t.Context(), b); err == nil {
		_, _ = r.EnqueueMany(r.t.Context(), "orders", b.jobs[:r.random.IntN(len(b.jobs)+1)])
	}
}

// requireBatches checks, when nothing runs any more, that the final job of each complete batch ran after all others had
// ended, and that of an incomplete one did not run.
func (r *randomRound) requireBatches() {
	raw, err := os.ReadFile(r.log)
	require.NoError(r.t, err)
	history, sent := readHistory(r.t, r.log), 0
	for _, b := range r.batches {
		info, err := r.Batch(r.t.Context(), "orders", b.id)
		wasStarted := len(history[b.id]) > 0
		if !b.isSent {
			if err != nil || info.State == BatchDone || info.State == BatchRunning || wasStarted {
				r.t.Errorf("%s is %+v, %v, and its producer died: %q", b.id, info, err, history[b.id])
			}
			continue
		}
		sent++
		if err != nil || info.State != BatchDone || info.Ended != b.total || !hasEnded(history[b.id]) {
			r.t.Errorf("%s is %+v, %v: %q", b.id, info, err, history[b.id])
		}
		before, _, _ := strings.Cut("\n"+string(raw), "\n"+b.id+" start")
		for number := range b.total {
			id := fmt.Sprintf("\n%s:%d ", b.id, number)
			if !strings.Contains(before, id+"dead") && !strings.Contains(before, id+"done") {
				r.t.Errorf("the final job of %s started before number %d had ended", b.id, number)
			}
		}
	}
	r.t.Logf("%d batches, %d of them complete", len(r.batches), sent)
}
