package jobkeys

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/internal/clock"
)

const (
	// LockTime is how long a confirmed key is kept after its job was sent, its delay is over, or its last attempt has started. It bounds how
	// long a key is taken if the message of its job is lost.
	LockTime = 24 * time.Hour
	// reserveTime is how long a key stays reserved if its producer dies.
	reserveTime = 30 * time.Second
	// sendTime is less than reserveTime, so that no expired reservation is confirmed.
	sendTime = 20 * time.Second
	// endedTime is how long the end of a job is recorded: longer than the broker recognizes its ID.
	endedTime = 150 * time.Second
	// waitInterval is the time between two requests for a key that another producer has reserved.
	waitInterval = 50 * time.Millisecond
	// cleanupTime bounds the release of a reservation.
	cleanupTime = 2 * time.Second
)

// Send reserves the key of a unique job, and sends the job. The error is a SendError.
func Send(ctx context.Context, producer broker.Producer, job *broker.OutgoingJob) (broker.SendResult, error) {
	if !job.IsUnique {
		return producer.Send(ctx, job)
	}
	store, isStore := producer.(broker.KeyStore)
	if !isStore {
		return broker.SendResult{}, broker.UnsupportedField("unique", "is not supported by the engine")
	}
	if !job.HasChosenID {
		job.ID, job.HasChosenID = rand.Text(), true // the lock names the job before the broker stores it
	}
	r := &reservation{store: store, job: job}
	isStored, err := r.reserve(ctx)
	if err != nil || isStored {
		return broker.SendResult{ID: job.ID, Duplicate: isStored}, broker.SendErrorOf(err)
	}
	result, err := r.send(ctx, producer)
	return result, broker.SendErrorOf(err)
}

type reservation struct {
	store    broker.KeyStore
	job      *broker.OutgoingJob
	lock     *jobstate.Lock
	revision uint64
	// reservedTime is when the reservation was sent.
	reservedTime time.Time
}

func uniqueKey(name string) broker.Key { return broker.Key{Kind: broker.UniqueKey, Name: name} }

// reserve reports whether the job is already stored. It first assumes that the key was never used.
func (r *reservation) reserve(ctx context.Context) (isStored bool, err error) {
	var found *jobstate.Lock
	for {
		claim := jobstate.ClaimKey(found, r.job.ID)
		switch claim {
		case jobstate.ClaimReserve:
			r.lock, r.reservedTime = jobstate.Reserve(found, r.job.ID, rand.Text()), time.Now()
			if err := r.write(ctx, reserveTime); !errors.Is(err, broker.ErrKeyChanged) {
				return false, err
			}
		case jobstate.ClaimStored:
			return true, nil
		case jobstate.ClaimDuplicate:
			return false, &broker.SendError{
				Failure: broker.ErrKeyTaken, Field: "unique", KeyHolder: found.ID,
				Err: fmt.Errorf("is %q: the job %s has this key", r.job.UniqueKey, found.ID),
			}
		case jobstate.ClaimWait:
			if clock.SleepContext(ctx, waitInterval) != nil {
				return false, r.stillReserved(found)
			}
		}
		next, revision, err := readLock(ctx, r.store, r.job.Queue, r.job.UniqueKey)
		switch {
		case err == nil:
			found, r.revision = next, revision
		case claim == jobstate.ClaimWait && ctx.Err() != nil:
			return false, r.stillReserved(found)
		default:
			return false, err
		}
	}
}

// stillReserved returns the error of a producer that had no more time to wait for another producer.
func (r *reservation) stillReserved(other *jobstate.Lock) error {
	return broker.FieldFailure(broker.ErrUnavailable, "unique",
		"is %q: another producer has reserved this key for the job %s, and has not sent it", r.job.UniqueKey, other.ID)
}

func (r *reservation) write(ctx context.Context, expiry time.Duration) (err error) {
	r.revision, err = write(ctx, r.store, r.job.Queue, uniqueKey(r.job.UniqueKey), r.lock, expiry, r.revision)
	return err
}

func (r *reservation) send(ctx context.Context, producer broker.Producer) (broker.SendResult, error) {
	ctx, cancel := context.WithDeadline(ctx, r.reservedTime.Add(sendTime))
	defer cancel()
	r.job.Holder = r.lock.Holder
	result, err := producer.Send(ctx, r.job)
	switch {
	case err != nil:
		failure := (*broker.SendError)(nil)
		isUnknown := !errors.As(err, &failure) ||
			errors.Is(failure.Failure, broker.ErrUnavailable) || errors.Is(failure.Failure, broker.ErrClosed)
		if !isUnknown {
			r.release(ctx)
		}
		return result, err // if it is unknown whether the job is stored, the reservation remains
	case result.Duplicate && !r.job.IsUniqueFor:
		return result, r.settleDuplicate(ctx, result)
	}
	return result, r.confirm(ctx)
}

// settleDuplicate confirms the key for the message of an earlier call, unless its job has ended.
func (r *reservation) settleDuplicate(ctx context.Context, result broker.SendResult) error {
	stored, err := r.store.StoredHolder(ctx, r.job, result)
	if err != nil {
		return err
	}
	if !r.lock.Adopt(stored) {
		r.release(ctx)
		return nil
	}
	return r.confirm(ctx)
}

// release frees the key, unless it has changed. If that fails, the reservation expires.
func (r *reservation) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_, _ = write(ctx, r.store, r.job.Queue, uniqueKey(r.job.UniqueKey), r.lock.Release(), endedTime, r.revision)
}

// confirm keeps the key until the job has ended, or for its window.
func (r *reservation) confirm(ctx context.Context) error {
	r.lock.Confirmed = true
	for {
		keepTime := LockTime + max(time.Until(r.job.DueTime), 0)
		if r.job.IsUniqueFor {
			keepTime = r.job.UniqueFor
		}
		if err := r.write(ctx, keepTime); !errors.Is(err, broker.ErrKeyChanged) {
			return err
		}
		found, revision, err := readLock(ctx, r.store, r.job.Queue, r.job.UniqueKey)
		if err != nil || !jobstate.NeedsConfirm(found, r.job.ID) {
			return err
		}
		r.revision = revision
	}
}

// readLock returns nil if the key is free.
func readLock(ctx context.Context, store broker.KeyStore, queue, key string) (*jobstate.Lock, uint64, error) {
	value, revision, err := store.ReadKey(ctx, queue, uniqueKey(key))
	if err != nil || value == nil {
		return nil, revision, err
	}
	return jobstate.DecodeLock(value), revision, nil
}

// write stores a lock or a batch, and returns its revision; after an error, the given one.
func write(
	ctx context.Context, store broker.KeyStore, queue string, key broker.Key, content any, expiry time.Duration, revision uint64,
) (uint64, error) {
	value, err := json.Marshal(content)
	if err != nil {
		return revision, err
	}
	written, err := store.WriteKey(ctx, queue, key, value, expiry, revision)
	if err != nil {
		return revision, err
	}
	return written, nil
}

const concurrentSends = 10

// SendMany sends jobs of a queue as SendMany of the producer does, and unique jobs as Send.
func SendMany(ctx context.Context, producer broker.Producer, queue string, jobs []*broker.OutgoingJob) []broker.SendResult {
	results := make([]broker.SendResult, len(jobs))
	var others []*broker.OutgoingJob
	var indexes []int
	var sending errgroup.Group
	sending.SetLimit(concurrentSends)
	for i, job := range jobs {
		if !job.IsUnique {
			others, indexes = append(others, job), append(indexes, i)
			continue
		}
		sending.Go(func() (_ error) {
			result, err := Send(ctx, producer, job)
			result.Err = err
			results[i] = result
			return
		})
	}
	if len(others) > 0 {
		for n, result := range producer.SendMany(ctx, queue, others) {
			results[indexes[n]] = result
		}
	}
	_ = sending.Wait() // the errors are in the results
	return results
}
