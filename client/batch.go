package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// MaxBatchJobs is the maximum number of jobs in a batch, without the final job.
const MaxBatchJobs = jobstate.MaxBatchJobs

// BatchState is the state of a batch.
type BatchState string

// The states of a batch.
const (
	// BatchIncomplete: the queue does not have all jobs. If the producer has failed, call EnqueueBatch again with the same ID and the same
	// jobs; otherwise the stored jobs run, and the final job does not.
	BatchIncomplete BatchState = "incomplete"
	// BatchRunning: the final job, or another job, has not ended.
	BatchRunning BatchState = "running"
	// BatchDone: the final job is done, dead or canceled.
	BatchDone BatchState = "done"
	// BatchUnknown: the batch does not exist, or has not changed for 7 days.
	BatchUnknown BatchState = "unknown"
)

// BatchInfo describes a batch.
type BatchInfo struct {
	// ID of the batch, and of its final job.
	ID    string
	State BatchState
	// Total is the number of jobs without the final job. Ended is the number of jobs that are done, dead or canceled, Failed that of dead or
	// canceled jobs. Requeueing a dead letter changes neither.
	Total, Ended, Failed int
	// SentTime is when EnqueueBatch was first called.
	SentTime time.Time
}

// EnqueueBatch sends 1 to MaxBatchJobs jobs, and a final job, which runs when all other jobs are done, dead or canceled. The ID of the
// batch is the ID of the final job: choose it with ID, or else it is assigned; the receipt has it. Delay, At, Unique, UniqueFor and
// DeduplicateFor are ErrInvalid for all jobs, and ID and Track for all but the final job.
//
// If EnqueueBatch fails, or its program ends before it returns, some jobs may be stored: the batch is incomplete. Then call it again with
// the same ID and the same jobs. Stored jobs are not stored again while the queue recognizes their IDs, and the final job runs once. If
// the batch is complete, the receipt is that of a duplicate.
//
// A batch is kept for 7 days after its last job has ended. If no job ends for 7 days, the final job becomes a dead letter.
func (c *Client) EnqueueBatch(ctx context.Context, queue string, jobs []Job, final Job) (Receipt, error) {
	b, err := c.newBatch(queue, jobs, final)
	if err != nil {
		return Receipt{}, newOperationError("enqueueing a batch to", queue, "", err)
	}
	isComplete, err := c.openBatch(ctx, b)
	if err != nil || isComplete {
		return Receipt{ID: b.id, Duplicate: isComplete}, newOperationError("enqueueing a batch to", queue, b.id, err)
	}
	if _, err := c.EnqueueMany(ctx, queue, b.jobs); err != nil {
		return Receipt{ID: b.id}, err
	}
	if _, err := c.enqueue(ctx, queue, b.final); err != nil {
		return Receipt{ID: b.id}, err
	}
	err = c.withKeys(ctx, func(ctx context.Context, store broker.KeyStore) error {
		return jobkeys.CompleteBatch(ctx, store, queue, b.id)
	})
	return Receipt{ID: b.id}, newOperationError("enqueueing a batch to", queue, b.id, err)
}

type batch struct {
	queue, id string
	total     int
	jobs      []Job // without jobs that have ended
	final     Job
}

// maxBatchIDBytes leaves space for the numbers of jobs in their IDs.
const maxBatchIDBytes = broker.MaxChosenIDBytes - 8

// newBatch validates all jobs before the first job is sent.
func (c *Client) newBatch(queue string, jobs []Job, final Job) (*batch, error) {
	if err := broker.ValidateStoredJob(queue, broker.FinalMember); err != nil {
		return nil, err
	}
	if len(jobs) < 1 || len(jobs) > MaxBatchJobs {
		return nil, broker.InvalidField("jobs", "are %d, must be 1 to %d", len(jobs), MaxBatchJobs)
	}
	last, err := c.outgoing(queue, final)
	if err == nil {
		err = checkMember(last)
	}
	if err == nil && len(last.ID) > maxBatchIDBytes {
		err = broker.InvalidField("id", "has %d bytes, must have at most %d as that of a batch", len(last.ID), maxBatchIDBytes)
	}
	if err != nil {
		return nil, inField("final", err)
	}
	b := &batch{queue: queue, id: last.ID, total: len(jobs)}
	if !last.HasChosenID {
		b.id = rand.Text()
	}
	for i, job := range jobs {
		member, err := c.outgoing(queue, job)
		if err == nil {
			err = checkMember(member)
		}
		if err == nil && (member.HasChosenID || member.IsTracked) {
			err = broker.InvalidField("id", "and track cannot be set for the jobs of a batch: they have the ID of the batch and their number")
		}
		if err != nil {
			return nil, inField(fmt.Sprintf("jobs[%d]", i), err)
		}
		b.jobs = append(b.jobs, inBatch(job, b.id, strconv.Itoa(i), fmt.Sprintf("%s:%d", b.id, i)))
	}
	b.final = inBatch(final, b.id, broker.FinalMember, b.id)
	return b, nil
}

// inField returns an error about a field of a job as an error about a field of the batch.
func inField(job string, err error) error {
	failure := (*broker.SendError)(nil)
	if !errors.As(err, &failure) {
		return err
	}
	inner := *failure
	inner.Field = job + "." + inner.Field
	return &inner
}

// checkMember refuses options that could prevent that a job of a batch is stored or ends.
func checkMember(job *broker.OutgoingJob) error {
	switch {
	case job.IsUnique:
		return broker.InvalidField("unique", "cannot be set for a job of a batch")
	case !job.DueTime.IsZero():
		return broker.InvalidField("delay", "cannot be set for a job of a batch")
	case job.DeduplicateFor != 0:
		return broker.InvalidField("deduplicateFor", "cannot be set for a job of a batch")
	}
	return nil
}

func inBatch(job Job, batchID, member, id string) Job {
	place := func(o *jobOptions) {
		ID(id)(o)
		o.job.BatchID, o.job.BatchMember, o.job.Holder = batchID, member, rand.Text()
	}
	job.options = append(append([]Option(nil), job.options...), place)
	return job
}

// openBatch stores the batch, and removes the jobs that have ended. It reports whether the batch is complete.
func (c *Client) openBatch(ctx context.Context, b *batch) (isComplete bool, err error) {
	err = c.withKeys(ctx, func(ctx context.Context, store broker.KeyStore) error {
		stored, err := jobkeys.OpenBatch(ctx, store, b.queue, b.id, b.total, c.now())
		if err != nil {
			return err
		}
		isComplete = stored.Complete
		var left []Job
		for i, job := range b.jobs {
			if !stored.HasEnded(i) {
				left = append(left, job)
			}
		}
		b.jobs = left
		return nil
	})
	return isComplete, err
}

// Batch returns the state of a batch. The error is an *Error.
func (c *Client) Batch(ctx context.Context, queue, id string) (BatchInfo, error) {
	info := BatchInfo{ID: id, State: BatchUnknown}
	err := broker.ValidateJobReference(queue, id)
	if err == nil {
		err = c.withKeys(ctx, func(ctx context.Context, store broker.KeyStore) error {
			stored, err := jobkeys.ReadBatch(ctx, store, queue, id)
			if err == nil && stored != nil {
				info = BatchInfo{
					ID: id, State: BatchIncomplete, Total: stored.Total, Ended: stored.EndedCount(), Failed: stored.Failed, SentTime: stored.SentTime,
				}
				switch {
				case stored.Done:
					info.State = BatchDone
				case stored.Complete:
					info.State = BatchRunning
				}
			}
			return broker.SendErrorOf(err)
		})
	}
	return info, newOperationError("looking up a batch of", queue, id, err)
}

func (c *Client) withKeys(ctx context.Context, call func(context.Context, broker.KeyStore) error) error {
	ctx, producer, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	store, isStore := producer.(broker.KeyStore)
	if !isStore {
		return broker.UnsupportedField("queue", "is on an engine without batches")
	}
	return call(ctx, store)
}
