package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
)

// Receipt identifies a job that the broker stores.
type Receipt struct {
	// ID of the job in its queue: the ID that was chosen, or else an assigned ID. Handlers receive it.
	ID string
	// Duplicate: the queue has another job with this ID, and did not store this job.
	Duplicate bool
}

// Job is a job for EnqueueMany.
type Job struct {
	payload []byte
	options []Option
	// err is why the value could not be encoded.
	err error
}

// NewJob returns a job for EnqueueMany.
func NewJob(payload []byte, options ...Option) Job { return Job{payload: payload, options: options} }

// EnqueueResult is the result for a job of EnqueueMany. If Err is not nil, it may be unknown whether the job was enqueued.
type EnqueueResult struct {
	Receipt

	Err error
}

// Enqueue sends a job to a queue, and returns after the broker has confirmed that it stores the job. The name of the queue is that in
// status.name of its Queue. The error is an *Error.
func (c *Client) Enqueue(ctx context.Context, queue string, payload []byte, options ...Option) (Receipt, error) {
	return c.enqueue(ctx, queue, Job{payload: payload, options: options})
}

func (c *Client) enqueue(ctx context.Context, queue string, request Job) (Receipt, error) {
	job, err := c.outgoing(queue, request)
	if err != nil {
		return Receipt{}, newError(queue, job.ID, err)
	}
	ctx, producer, end, err := c.begin(ctx)
	if err != nil {
		return Receipt{}, newError(queue, job.ID, err)
	}
	defer end()
	ctx, span := c.tracer.start(ctx, queue, 1)
	injectTraceContext(ctx, job)
	result, err := jobkeys.Send(ctx, producer, job)
	err = newError(queue, job.ID, err)
	c.tracer.end(span, result.ID, err)
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{ID: result.ID, Duplicate: result.Duplicate}, newError(queue, result.ID, track(ctx, producer, job, result))
}

// track records that a job with the option Track waits.
func track(ctx context.Context, producer broker.Producer, job *broker.OutgoingJob, sent broker.SendResult) error {
	store, isStore := producer.(broker.JobStore)
	switch {
	case !job.IsTracked:
		return nil
	case !isStore:
		return broker.UnsupportedField("track", "is not supported by the engine")
	}
	return store.RecordWaiting(ctx, job, sent)
}

const (
	// maxChunkJobs and maxChunkBytes limit the jobs that are sent before the first confirmation is read.
	maxChunkJobs  = 1000
	maxChunkBytes = 8 << 20
)

// EnqueueMany sends jobs to a queue without waiting for the confirmation of each job before it sends the next. The jobs are not a
// transaction: some may be enqueued and others not. It returns a result for each job, in the same order, and an error if a result has an
// error.
func (c *Client) EnqueueMany(ctx context.Context, queue string, jobs []Job) ([]EnqueueResult, error) {
	results := make([]EnqueueResult, len(jobs))
	for start := 0; start < len(jobs); {
		end := chunkEnd(jobs, start)
		c.enqueueChunk(ctx, queue, jobs[start:end], results[start:end])
		start = end
	}
	failed := 0
	var first error
	for i := range results {
		if err := results[i].Err; err != nil {
			failed++
			first = cmp.Or(first, err)
		}
	}
	if failed > 0 {
		return results, fmt.Errorf("%d of %d jobs were not enqueued; the first: %w", failed, len(jobs), first)
	}
	return results, nil
}

// chunkEnd returns the index after the last job of the chunk that begins at start.
func chunkEnd(jobs []Job, start int) int {
	size, end := 0, start
	for end < len(jobs) && end-start < maxChunkJobs {
		if size += len(jobs[end].payload); size > maxChunkBytes && end > start {
			break
		}
		end++
	}
	return end
}

func (c *Client) enqueueChunk(ctx context.Context, queue string, jobs []Job, results []EnqueueResult) {
	var outgoing []*broker.OutgoingJob
	var indexes []int
	for i, request := range jobs {
		job, err := c.outgoing(queue, request)
		if err != nil {
			results[i].Err = newError(queue, job.ID, err)
			continue
		}
		outgoing, indexes = append(outgoing, job), append(indexes, i)
	}
	if len(outgoing) == 0 {
		return
	}
	ctx, producer, end, err := c.begin(ctx)
	if err != nil {
		for _, i := range indexes {
			results[i].Err = newError(queue, "", err)
		}
		return
	}
	defer end()
	ctx, span := c.tracer.start(ctx, queue, len(outgoing))
	for _, job := range outgoing {
		injectTraceContext(ctx, job)
	}
	var first error
	for n, result := range jobkeys.SendMany(ctx, producer, queue, outgoing) {
		i := indexes[n]
		if result.Err == nil {
			result.Err = track(ctx, producer, outgoing[n], result)
		}
		results[i] = EnqueueResult{Receipt{result.ID, result.Duplicate}, newError(queue, outgoing[n].ID, result.Err)}
		if first == nil {
			first = results[i].Err
		}
	}
	c.tracer.end(span, "", first)
}

// outgoing returns the job to send, even with an error.
func (c *Client) outgoing(queue string, request Job) (*broker.OutgoingJob, error) {
	o := jobOptions{job: broker.OutgoingJob{Queue: queue, Payload: request.payload}}
	for _, option := range request.options {
		option(&o)
	}
	if request.err != nil {
		return &o.job, request.err
	}
	if o.delay < 0 {
		return &o.job, broker.InvalidField("delay", "is %s, must not be negative", o.delay)
	}
	if o.delay > 0 {
		o.job.DueTime = c.now().Add(o.delay)
	}
	return &o.job, o.job.Validate()
}

// Codec encodes values as payloads.
type Codec interface {
	// Encode returns the payload.
	Encode(value any) ([]byte, error)
	// ContentType is the media type of payloads, for the header Content-Type; empty for none.
	ContentType() string
}

// JSON encodes values with encoding/json.
type JSON struct{}

// Encode implements Codec.
func (JSON) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// ContentType implements Codec.
func (JSON) ContentType() string { return "application/json" }

const contentTypeHeader = "Content-Type"

// Kinder is a value whose type selects the handler of the job.
type Kinder interface {
	// Kind of the job. The option Kind has precedence.
	Kind() string
}

// Enqueue encodes a value with the codec of the client, and sends it to a queue as the method Enqueue does. A Kinder sets the kind.
func Enqueue[T any](ctx context.Context, c *Client, queue string, value T, options ...Option) (Receipt, error) {
	return c.enqueue(ctx, queue, Encode(c, value, options...))
}

// Encode returns a job for EnqueueMany with a value, as Enqueue[T] sends it. If the value cannot be encoded, the result of the job has the
// error.
func Encode[T any](c *Client, value T, options ...Option) Job {
	payload, err := c.codec.Encode(value)
	if err != nil {
		err = &broker.SendError{Failure: broker.ErrInvalidJob, Field: "payload", Err: fmt.Errorf("cannot be encoded: %w", err)}
	}
	var defaults []Option
	if name := c.codec.ContentType(); name != "" {
		defaults = append(defaults, Header(contentTypeHeader, name))
	}
	if kinder, is := any(value).(Kinder); is {
		defaults = append(defaults, Kind(kinder.Kind()))
	}
	return Job{payload: payload, options: append(defaults, options...), err: err}
}
