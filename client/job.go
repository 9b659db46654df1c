package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// State of a job.
type State string

// The states of a job.
const (
	// StateWaiting: the broker stores the job, and no worker runs it or has reported a failed attempt.
	StateWaiting State = State(jobstate.Waiting)
	// StateRunning: the worker that runs the job has reported it within its lease.
	StateRunning State = State(jobstate.Running)
	// StateRetrying: an attempt failed, and the broker stores the job for the next one.
	StateRetrying State = State(jobstate.Retrying)
	// StateDead: the job is not attempted again. It is a dead letter, unless its queue keeps none.
	StateDead State = State(jobstate.Dead)
	// StateDone: the handler succeeded.
	StateDone State = State(jobstate.Done)
	// StateCanceled: the job was canceled before it was done.
	StateCanceled State = State(jobstate.Canceled)
	// StateUnknown: the job may wait under an ID that was sent without Track, its worker may be lost, it may have ended longer ago than the
	// retention of the queue, or it may never have been sent.
	StateUnknown State = State(jobstate.Unknown)
)

// IsFinal reports whether no attempt follows, unless somebody sends the job or requeues its dead letter.
func (s State) IsFinal() bool { return jobstate.State(s).IsFinal() }

// JobInfo describes a job. Unknown fields are zero.
type JobInfo struct {
	ID    string
	State State
	// Kind and Priority of the job.
	Kind, Priority string
	// Attempt is the number of the last reported attempt, from 1, and MaxAttempts that of the last possible attempt.
	Attempt, MaxAttempts int
	// StartTime is when the last attempt started, NextTime when the next attempt is due at the earliest, and UpdateTime when the state was
	// stored.
	StartTime, NextTime, UpdateTime time.Time
	// Error is why the last attempt failed, in at most 1 KiB.
	Error string
	// Progress that the handler of a running job reported last; nil if it has not reported any.
	Progress *Progress
	// Result of the handler, as JSON; nil without a result.
	Result json.RawMessage
	// CancelRequested: a worker cancels the job, unless the job ends before.
	CancelRequested bool
}

// Progress of a running job.
type Progress struct {
	// Fraction that is done, 0 to 1, and a text, which may be empty.
	Fraction float64
	Text     string
}

// Track makes Enqueue record that the job waits, so that Job finds it by the ID that was chosen, at the cost of a second request. Without
// Track, Job finds a waiting job on NATS only by an assigned ID, or while it is delayed. On asynq, Job finds each job. If the queue keeps
// no states, Enqueue sends the job and returns ErrUnsupported.
func Track() Option { return func(o *jobOptions) { o.job.IsTracked = true } }

// Job returns the state of a job in a queue that keeps states, with spec.results of its Queue. The error is an *Error; ErrUnsupported: the
// queue keeps no states.
func (c *Client) Job(ctx context.Context, queue, id string) (JobInfo, error) {
	var info jobstate.Info
	err := c.withStore(ctx, "looking up a job of", queue, id, func(ctx context.Context, store broker.JobStore) (err error) {
		info, err = store.Job(ctx, queue, id)
		return err
	})
	if err != nil {
		return JobInfo{}, err
	}
	all := JobInfo{
		ID: info.ID, State: State(info.State), Kind: info.Kind, Priority: info.Priority, Attempt: info.Attempt, MaxAttempts: info.MaxAttempts,
		StartTime: info.StartTime, NextTime: info.NextTime, UpdateTime: info.UpdateTime, Error: info.Error, Result: info.Result,
		CancelRequested: info.CancelRequested,
	}
	if info.Progress != nil {
		all.Progress = &Progress{info.Progress.Fraction, info.Progress.Text}
	}
	return all, nil
}

// ErrNoResult means that a job has no result: it is not done, its handler returned no result, or the result is no longer kept. The message
// has the state of the job.
var ErrNoResult = errors.New("the job has no result")

// Result returns the result of a job that is done, as its handler has returned it. Without a result, the error is ErrNoResult.
func Result[T any](ctx context.Context, c *Client, queue, id string) (T, error) {
	var value T
	info, err := c.Job(ctx, queue, id)
	if err != nil {
		return value, err
	}
	if info.State != StateDone || info.Result == nil {
		return value, fmt.Errorf("%w: it is %s", ErrNoResult, info.State)
	}
	if err := json.Unmarshal(info.Result, &value); err != nil {
		return value, fmt.Errorf("decoding the result of the job %s of %s: %w", id, queue, err)
	}
	return value, nil
}

// Cancellation is the outcome of Cancel.
type Cancellation string

// The outcomes of Cancel.
const (
	// CancelDone: the job was removed from its queue, and does not run.
	CancelDone Cancellation = "done"
	// CancelRequested: a worker that runs the job ends the context of its handler, and a worker that receives the job removes it. The job may
	// be done before.
	CancelRequested Cancellation = "requested"
	// CancelTooLate: the job has ended.
	CancelTooLate Cancellation = "tooLate"
)

// Cancel cancels a job of a queue that keeps the states of its jobs. The context of a running handler ends with the cause
// worker.ErrCanceled; a job that waits is removed when a worker receives it. Jobs that are sent later with the same ID are not canceled.
// The request is kept as long as the states of jobs. Job returns its outcome.
//
// The error is an *Error; ErrUnsupported: the queue keeps no states. After ErrUnavailable, call Cancel again.
func (c *Client) Cancel(ctx context.Context, queue, id string) (Cancellation, error) {
	var canceled broker.CanceledJob
	err := c.withStore(ctx, "canceling a job of", queue, id, func(ctx context.Context, store broker.JobStore) (err error) {
		canceled, err = broker.CancelStoredJob(ctx, store, queue, id)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case canceled.Removed:
		return CancelDone, nil
	case canceled.Ended:
		return CancelTooLate, nil
	default:
		return CancelRequested, nil
	}
}

func (c *Client) withStore(ctx context.Context, operation, queue, id string, call func(context.Context, broker.JobStore) error) (err error) {
	defer func() { err = newOperationError(operation, queue, id, err) }()
	if err := broker.ValidateStoredJob(queue, id); err != nil {
		return err
	}
	ctx, producer, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	store, isStore := producer.(broker.JobStore)
	if !isStore {
		return broker.UnsupportedField("queue", "is on an engine that keeps no states of jobs")
	}
	return call(ctx, store)
}
