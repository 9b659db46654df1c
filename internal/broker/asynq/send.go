package asynq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

const (
	// untypedTask is the type of the task of a job without a kind: asynq requires one.
	untypedTask = "job"
	// concurrentSends is the number of tasks that SendMany sends at a time, each with a connection.
	concurrentSends = requestPoolSize / 2
	// taskTimeoutReserve is how much later than the worker asynq ends an attempt: only the worker reports a timeout.
	taskTimeoutReserve = time.Minute
	// maxTaskBytes is the default limit of a Redis server for one value.
	maxTaskBytes = 512<<20 - broker.MaxHeaderBytes - 4096
)

// Send implements broker.Producer. asynq creates any queue that a task is sent to, and does not reject tasks, so
// Send first checks that the queue exists and does not drain.
func (e *Engine) Send(ctx context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
	retention, err := e.checkSendable(ctx, job.Queue)
	if err != nil {
		return broker.SendResult{}, err
	}
	return e.enqueueJob(ctx, job, retention)
}

// SendMany implements broker.Producer. The client of asynq has no pipelines, so it sends several at a time.
func (e *Engine) SendMany(ctx context.Context, queue string, jobs []*broker.OutgoingJob) []broker.SendResult {
	results := make([]broker.SendResult, len(jobs))
	retention, err := e.checkSendable(ctx, queue)
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	var sending errgroup.Group
	sending.SetLimit(concurrentSends)
	for i, job := range jobs {
		sending.Go(func() error {
			result, err := e.enqueueJob(ctx, job, retention)
			result.Err = err
			results[i] = result
			return nil
		})
	}
	_ = sending.Wait() // the errors are in the results
	return results
}

// checkSendable returns an error if the queue accepts no jobs, and how long it keeps jobs that are done.
func (e *Engine) checkSendable(ctx context.Context, queue string) (time.Duration, error) {
	var isKnown *goredis.BoolCmd
	var record *goredis.SliceCmd
	// Each command has its own error.
	_, _ = e.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		isKnown, record = p.SIsMember(ctx, queuesKey, queue), p.HMGet(ctx, recordKey(queue), fieldClosed, fieldRetention)
		return nil
	})
	if err := cmp.Or(isKnown.Err(), record.Err()); err != nil {
		return 0, sendError(queue, err)
	}
	closed, _ := record.Val()[0].(string)
	seconds, _ := record.Val()[1].(string)
	switch {
	case !isKnown.Val():
		return 0, broker.UnknownQueue(queue)
	case closed != "":
		return 0, broker.DrainingQueue(queue)
	}
	retention, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return 0, nil //nolint:nilerr // the queue keeps no jobs
	}
	return time.Duration(retention) * time.Second, nil
}

func (e *Engine) enqueueJob(ctx context.Context, job *broker.OutgoingJob, retention time.Duration) (broker.SendResult, error) {
	if len(job.Payload) > maxTaskBytes {
		return broker.SendResult{}, broker.FieldFailure(broker.ErrPayloadTooLarge, "payload", "has %d bytes, must have at most %d",
			len(job.Payload), maxTaskBytes)
	}
	task, options, err := taskOf(job, time.Now(), retention)
	if err != nil {
		return broker.SendResult{}, err
	}
	id := job.ChosenOrRandomID()
	_, err = e.producer.EnqueueContext(ctx, task, append(options, asynq.TaskID(id))...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return broker.SendResult{ID: id, Duplicate: true}, nil
	}
	if limit := e.exceededLimit(ctx, job, err); limit > 0 {
		return broker.SendResult{}, broker.FieldFailure(broker.ErrPayloadTooLarge, "payload", "has %d bytes; with the headers, the server accepts at most %d",
			len(job.Payload), limit)
	}
	return broker.SendResult{ID: id}, sendError(job.Queue, err)
}

// minBulkLimit is the smallest limit that a server can have for the size of a value.
const minBulkLimit = 1 << 20

// exceededLimit returns the limit of the server that a job exceeds, or 0 if it exceeds none or the server does not return the
// limit. The server closes the connection of a client that sends more, often before the client reads the reason.
func (e *Engine) exceededLimit(ctx context.Context, job *broker.OutgoingJob, err error) int64 {
	if err == nil || len(job.Payload) < minBulkLimit-broker.MaxHeaderBytes {
		return 0
	}
	const setting = "proto-max-bulk-len"
	values, err := e.client.ConfigGet(ctx, setting).Result()
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(values[setting], 10, 64)
	if err != nil || int64(len(job.Payload)) < limit-broker.MaxHeaderBytes {
		return 0
	}
	return limit
}

func taskOf(job *broker.OutgoingJob, now time.Time, retention time.Duration) (*asynq.Task, []asynq.Option, error) {
	if job.PriorityName() != broker.DefaultPriority {
		return nil, nil, broker.UnsupportedField("priority", "is %q; the engine asynq has no priorities within a queue: use a queue for each", job.Priority)
	}
	headers := map[string]string{}
	for name, values := range job.CommonHeaders() {
		if len(values) > 1 {
			return nil, nil, broker.UnsupportedField("headers["+name+"]", "has %d values; the engine asynq supports one", len(values))
		}
		headers[name] = values[0]
	}
	options := []asynq.Option{
		asynq.Queue(job.Queue),
		// The retry policy of the queue decides.
		asynq.MaxRetry(broker.MaxAttempts - 1),
	}
	if job.IsDelayed(now) {
		options = append(options, asynq.ProcessAt(job.DueTime.Add(time.Second-time.Nanosecond).Truncate(time.Second))) // see roundUpToSeconds
	}
	if job.Timeout > 0 {
		options = append(options, asynq.Timeout(job.Timeout+taskTimeoutReserve))
	}
	// asynq recognizes the ID of a task as long as it stores the task.
	if kept := max(retention, job.DeduplicateFor); kept > 0 {
		options = append(options, asynq.Retention(roundUpToSeconds(kept)))
	}
	return asynq.NewTaskWithHeaders(cmp.Or(job.Kind, untypedTask), job.Payload, headers), options, nil
}

func sendError(queue string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, goredis.ErrClosed) {
		return &broker.SendError{Failure: broker.ErrClosed, Err: err}
	}
	if strings.Contains(err.Error(), outOfMemoryError) {
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: fmt.Errorf("the server refused the job: %s", broker.TruncateText(err.Error()))}
	}
	return broker.SendErrorOf(redisclient.ClassifyError("sending a job to the queue "+queue, err))
}

// outOfMemoryError is how a server with maxmemory refuses writes.
const outOfMemoryError = "OOM command not allowed"
