package jobkeys

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// Keys are the keys of the jobs that a program receives. Its methods are safe for concurrent use.
type Keys struct {
	store broker.KeyStore

	mu      sync.Mutex
	commits map[batchName]*batchCommits
}

// New returns Keys that use a store.
func New(store broker.KeyStore) *Keys {
	return &Keys{store: store, commits: map[batchName]*batchCommits{}}
}

// Held is the unique key of a job, its place in a batch, or both. Nil has neither.
type Held struct {
	keys  *Keys
	queue string
	id    string
	// unique is the key of the job; empty without a key. holder identifies its message.
	unique, holder string
	// batch is the ID of the batch of the job; empty without a batch. member is the number of the job.
	batch   string
	member  int
	isFinal bool

	mu sync.Mutex
	// lock is the lock that this job has written or found; nil: none. revision is its revision.
	lock     *jobstate.Lock
	revision uint64
}

// Of returns what a job holds according to its headers.
func (k *Keys) Of(queue, id string, headers map[string][]string) *Held {
	unique, batch := broker.HeaderValue(headers, broker.UniqueHeader), broker.HeaderValue(headers, broker.BatchHeader)
	if unique == "" && batch == "" {
		return nil
	}
	h := &Held{keys: k, queue: queue, id: id, unique: unique, holder: broker.HeaderValue(headers, broker.HolderHeader), batch: batch}
	if h.holder == "" {
		h.holder = id // producers in other languages may omit it
	}
	if !broker.IsIdentifier(h.unique) {
		h.unique = ""
	}
	var err error
	member := broker.HeaderValue(headers, broker.MemberHeader)
	if h.isFinal = member == broker.FinalMember; !h.isFinal {
		h.member, err = strconv.Atoi(member)
	}
	if !broker.IsIdentifier(h.batch) || err != nil {
		h.batch, h.isFinal = "", false
	}
	if h.unique == "" && h.batch == "" {
		return nil
	}
	return h
}

// Start is the decision about a job that a worker has received. At most one field is set; without a field, the job runs.
type Start struct {
	// Postponed is the time after which the job has to be delivered again, without an attempt.
	Postponed time.Duration
	// Duplicate: another message with the same final job exists.
	Duplicate bool
	// Dead is why the job can no longer run.
	Dead string
}

// Start decides about a job that is about to run, and takes its key. If it returns an error, the job must not run.
func (h *Held) Start(ctx context.Context, sent, now time.Time) (Start, error) {
	if h == nil {
		return Start{}, nil
	}
	if h.isFinal {
		start, err := h.startFinal(ctx, now)
		if err != nil || start != (Start{}) {
			return start, err
		}
	}
	if h.unique == "" {
		return Start{}, nil
	}
	taken, err := h.take(ctx)
	if err == nil && !taken {
		return Start{Postponed: jobstate.WaitDelay(sent, now)}, nil
	}
	return Start{}, err
}

// take reports whether the job has its key now. It always writes the lock, so that the lock is kept for the whole LockTime.
func (h *Held) take(ctx context.Context) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		found, revision, err := readLock(ctx, h.keys.store, h.queue, h.unique)
		if err != nil || !jobstate.MayStart(found, h.holder) {
			return false, err
		}
		lock := jobstate.Take(found, h.id, h.holder)
		revision, err = write(ctx, h.keys.store, h.queue, uniqueKey(h.unique), lock, LockTime, revision)
		if err == nil {
			h.lock, h.revision = lock, revision
		}
		if !errors.Is(err, broker.ErrKeyChanged) {
			return err == nil, err
		}
	}
}

const renewTimeout = 10 * time.Second

// Keep renews the key of a job that runs until the returned function is called.
func (h *Held) Keep(ctx context.Context) (stop func()) {
	if h == nil || h.unique == "" {
		return func() {}
	}
	const renewalsPerLockTime = 3
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		ticker := time.NewTicker(LockTime / renewalsPerLockTime)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				renewing, end := context.WithTimeout(ctx, renewTimeout)
				_, _ = h.take(renewing) // the next renewal tries again
				end()
			}
		}
	}()
	return cancel
}

// End records that a job has ended, and releases its key. Call it before the message is acknowledged, and again after an error. Repeated
// calls have the same effect as a single call.
func (h *Held) End(ctx context.Context, failed bool) error {
	if h == nil {
		return nil
	}
	if h.batch != "" {
		if err := h.endInBatch(ctx, failed); err != nil {
			return fmt.Errorf("recording the end of a job in its batch %s: %w", h.batch, err)
		}
	}
	if h.unique != "" {
		if err := h.releaseLock(ctx); err != nil {
			return fmt.Errorf("releasing the unique key %s: %w", h.unique, err)
		}
	}
	return nil
}

// EndCanceled releases the keys of a job that was canceled before a worker received it. The error is a SendError.
func EndCanceled(ctx context.Context, store broker.KeyStore, queue, id string, headers map[string][]string) error {
	if err := New(store).Of(queue, id, headers).End(ctx, true); err != nil {
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: fmt.Errorf("the job was canceled, and its key is still taken: %w", err)}
	}
	return nil
}

// releaseLock records that the job has ended, unless another job has the key.
func (h *Held) releaseLock(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.lock != nil {
			_, err := write(ctx, h.keys.store, h.queue, uniqueKey(h.unique), h.lock.Release(), endedTime, h.revision)
			if !errors.Is(err, broker.ErrKeyChanged) {
				return err
			}
		}
		found, revision, err := readLock(ctx, h.keys.store, h.queue, h.unique)
		if err != nil || found.IsFree() || found.Holder != h.holder {
			return err
		}
		h.lock, h.revision = found, revision
	}
}
