package jobkeys

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/clock"
)

// BatchTime is how long a batch is kept after its last change.
const BatchTime = 7 * 24 * time.Hour

func batchKey(id string) broker.Key { return broker.Key{Kind: broker.BatchKey, Name: id} }

// ReadBatch returns nil if the batch does not exist.
func ReadBatch(ctx context.Context, store broker.KeyStore, queue, id string) (*jobstate.Batch, error) {
	batch, _, err := readBatch(ctx, store, queue, id)
	return batch, err
}

func readBatch(ctx context.Context, store broker.KeyStore, queue, id string) (*jobstate.Batch, uint64, error) {
	value, revision, err := store.ReadKey(ctx, queue, batchKey(id))
	if err != nil || value == nil {
		return nil, revision, err
	}
	return jobstate.DecodeBatch(value), revision, nil
}

// OpenBatch stores a batch before its jobs are sent, or returns the existing batch: an earlier call may have sent only some of its jobs.
func OpenBatch(ctx context.Context, store broker.KeyStore, queue, id string, total int, now time.Time) (*jobstate.Batch, error) {
	for {
		found, revision, err := readBatch(ctx, store, queue, id)
		switch {
		case err != nil:
			return nil, broker.SendErrorOf(err)
		case found != nil && found.Total != total:
			return nil, broker.InvalidField("id", "is %q: this batch exists with %d jobs, not %d", id, found.Total, total)
		case found != nil:
			return found, nil
		}
		batch := jobstate.NewBatch(total, now)
		if _, err := write(ctx, store, queue, batchKey(id), batch, BatchTime, revision); !errors.Is(err, broker.ErrKeyChanged) {
			return batch, broker.SendErrorOf(err)
		}
	}
}

// CompleteBatch records that the broker stores all jobs of a batch.
func CompleteBatch(ctx context.Context, store broker.KeyStore, queue, id string) error {
	_, err := changeBatch(ctx, store, queue, id, func(b *jobstate.Batch) bool {
		wasComplete := b.Complete
		b.Complete = true
		return !wasComplete
	})
	return broker.SendErrorOf(err)
}

// maxConflictDelay bounds the random delay before a change is repeated after a conflicting change.
const maxConflictDelay = 20 * time.Millisecond

// changeBatch changes a batch, unless change reports that it has changed nothing, and returns the batch; nil if it no longer exists.
func changeBatch(
	ctx context.Context, store broker.KeyStore, queue, id string, change func(*jobstate.Batch) (changed bool),
) (*jobstate.Batch, error) {
	for {
		batch, revision, err := readBatch(ctx, store, queue, id)
		if err != nil || batch == nil || !change(batch) {
			return batch, err
		}
		if _, err = write(ctx, store, queue, batchKey(id), batch, BatchTime, revision); !errors.Is(err, broker.ErrKeyChanged) {
			return batch, err
		}
		if err := clock.SleepContext(ctx, rand.N(maxConflictDelay)); err != nil { //nolint:gosec // it spreads requests and protects nothing
			return nil, err
		}
	}
}

func (h *Held) startFinal(ctx context.Context, now time.Time) (Start, error) {
	var decision jobstate.FinalStart
	batch, err := changeBatch(ctx, h.keys.store, h.queue, h.batch, func(b *jobstate.Batch) (changed bool) {
		decision, changed = b.StartFinal(h.holder)
		return changed
	})
	switch {
	case err != nil:
		return Start{}, err
	case batch == nil:
		return Start{Dead: fmt.Sprintf("the batch %s has expired: none of its jobs has ended within %s", h.batch, BatchTime)}, nil
	case decision == jobstate.FinalIsDuplicate:
		return Start{Duplicate: true}, nil
	case decision == jobstate.FinalWaits:
		return Start{Postponed: jobstate.WaitDelay(batch.SentTime, now)}, nil
	}
	return Start{}, nil
}

func (h *Held) endInBatch(ctx context.Context, failed bool) error {
	if !h.isFinal {
		return h.keys.endMember(ctx, batchName{h.queue, h.batch}, h.member, failed)
	}
	_, err := changeBatch(ctx, h.keys.store, h.queue, h.batch, func(b *jobstate.Batch) bool {
		wasDone := b.Done
		b.Done = b.FinalHolder == h.holder
		return b.Done != wasDone
	})
	return err
}

type batchName struct{ queue, id string }

// batchCommits combines the ends of the jobs of a batch: during a write, it collects the ends for the next write. Otherwise each worker
// would write as often as it runs jobs, and most writes would conflict.
type batchCommits struct {
	// users is the number of calls. Keys.mu guards it, and next.
	users int
	next  *batchCommit

	writing chan struct{} // with a capacity of one, for the call that writes
}

type batchCommit struct {
	ends []memberEnd
	// isWritten and err are guarded by batchCommits.writing.
	isWritten bool
	err       error
}

type memberEnd struct {
	member int
	failed bool
}

func (k *Keys) endMember(ctx context.Context, name batchName, member int, failed bool) error {
	commits, commit := k.join(name, memberEnd{member, failed})
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		commits.users--
		if commits.users == 0 {
			delete(k.commits, name)
		}
	}()
	select {
	case commits.writing <- struct{}{}:
		defer func() { <-commits.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if commit.isWritten {
		return commit.err
	}
	k.mu.Lock()
	commits.next = nil // commit is the oldest that is not written
	k.mu.Unlock()
	_, commit.err = changeBatch(ctx, k.store, name.queue, name.id, func(b *jobstate.Batch) (changed bool) {
		for _, end := range commit.ends {
			changed = b.End(end.member, end.failed) || changed
		}
		return changed
	})
	commit.isWritten = true
	return commit.err
}

func (k *Keys) join(name batchName, end memberEnd) (*batchCommits, *batchCommit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	commits := k.commits[name]
	if commits == nil {
		commits = &batchCommits{writing: make(chan struct{}, 1)}
		k.commits[name] = commits
	}
	commits.users++
	if commits.next == nil {
		commits.next = &batchCommit{}
	}
	commits.next.ends = append(commits.next.ends, end)
	return commits, commits.next
}
