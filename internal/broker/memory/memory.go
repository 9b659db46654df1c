// Package memory keeps queues in memory, for tests of programs that send jobs. It behaves as the NATS engine does:
// priorities, limits, deduplication and errors are the same. It is not an engine that the operator can use.
package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

const (
	// EngineName is in errors.
	EngineName = "Memory"
	// duplicateWindow and maxMessageBytes are those of a queue on NATS with defaults.
	duplicateWindow = 2 * time.Minute
	maxMessageBytes = 1 << 20
)

// Broker has queues. Its methods are safe for concurrent use.
type Broker struct {
	mu sync.Mutex
	// offset is how far the clock is ahead.
	offset        time.Duration
	isUnavailable bool
	queues        map[string]*queue
}

// New returns a Broker without queues.
func New() *Broker { return &Broker{queues: map[string]*queue{}} }

// queue is one queue.
type queue struct {
	config       broker.QueueConfig
	isDraining   bool
	lastSequence uint64
	// jobs in the order in which they were sent.
	jobs []*storedJob
	// sentTimes are when IDs were last sent.
	sentTimes   map[string]time.Time
	deadLetters []DeadLetter
	// states of the jobs that were taken, and of those that ended within the retention.
	states map[string]jobstate.Info
	// cancels are requests to cancel jobs. running has those that run.
	cancels map[string]time.Time
	running map[string]*Taken
	// keys are those of unique jobs and batches.
	keys         map[broker.Key]storedKey
	lastRevision uint64
}

// storedJob is a job that is not done.
type storedJob struct {
	broker.Message

	due time.Time
	// attempts is the number of attempts that have failed, and err why the last of them did.
	attempts int
	err      string
}

// isDelayed reports whether the job was sent for a later time.
func (j *storedJob) isDelayed(now time.Time) bool { return j.attempts == 0 && j.due.After(now) }

// Now returns the time of the broker's clock.
func (b *Broker) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now()
}

func (b *Broker) now() time.Time { return time.Now().Add(b.offset) }

// Advance sets the clock ahead.
func (b *Broker) Advance(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offset += by
}

// SetUnavailable makes the broker refuse everything, as one that is down, or accept it again.
func (b *Broker) SetUnavailable(unavailable bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isUnavailable = unavailable
}

// EnsureQueue creates or updates a queue.
func (b *Broker) EnsureQueue(_ context.Context, config broker.QueueConfig) (broker.EnsureResult, error) {
	if err := config.Validate(); err != nil {
		return broker.EnsureResult{}, &broker.ClassifiedError{Class: broker.ClassInvalid, Err: err}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q, found := b.queues[config.Name]
	if !found {
		q = &queue{
			sentTimes: map[string]time.Time{}, states: map[string]jobstate.Info{}, cancels: map[string]time.Time{}, running: map[string]*Taken{},
			keys: map[broker.Key]storedKey{},
		}
		b.queues[config.Name] = q
	}
	q.config, q.isDraining = config, false
	return broker.EnsureResult{Created: !found}, nil
}

// RejectNewMessages makes a queue drain.
func (b *Broker) RejectNewMessages(_ context.Context, name string, _ broker.QueueOwner) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return broker.Errorf(broker.ClassNotFound, "no queue %s", name)
	}
	q.isDraining = true
	return nil
}

// Stats returns the numbers of ready and delayed jobs, and of dead letters.
func (b *Broker) Stats(_ context.Context, name string) (broker.QueueStats, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return broker.QueueStats{}, broker.Errorf(broker.ClassNotFound, "no queue %s", name)
	}
	now := b.now()
	stats := broker.QueueStats{TotalArrivals: q.lastSequence, MeasuredTime: now, DeadLetters: int64(len(q.deadLetters))}
	for _, job := range q.jobs {
		if job.due.After(now) {
			stats.Delayed++
		} else {
			stats.Ready++
		}
	}
	return stats, nil
}

// Connect returns a Producer.
func (b *Broker) Connect() broker.Producer { return &connection{KeyStore: b, broker: b} }

// connection implements broker.Producer.
type connection struct {
	broker.KeyStore

	broker   *Broker
	isClosed atomic.Bool
}

// Send implements broker.Producer.
func (c *connection) Send(ctx context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
	if c.isClosed.Load() {
		return broker.SendResult{}, &broker.SendError{Failure: broker.ErrClosed, Err: errors.New("the connection is closed")}
	}
	return c.broker.send(ctx, job)
}

// SendMany implements broker.Producer.
func (c *connection) SendMany(ctx context.Context, _ string, jobs []*broker.OutgoingJob) []broker.SendResult {
	results := make([]broker.SendResult, len(jobs))
	for i, job := range jobs {
		result, err := c.Send(ctx, job)
		result.Err = err
		results[i] = result
	}
	return results
}

// CancelDelayed implements broker.Producer.
func (c *connection) CancelDelayed(ctx context.Context, name, id string) (bool, error) {
	job, err := c.broker.removeDelayed(ctx, name, id)
	if job == nil {
		return false, err
	}
	return true, c.broker.endKeys(ctx, name, job)
}

// removeDelayed returns nil if the queue has no such job.
func (b *Broker) removeDelayed(ctx context.Context, name, id string) (*storedJob, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkAvailable(ctx); err != nil {
		return nil, err
	}
	q := b.queues[name]
	if q == nil {
		return nil, unknownQueue(name)
	}
	return q.removeDelayed(id, b.now()), nil
}

func (q *queue) removeDelayed(id string, now time.Time) *storedJob {
	i := slices.IndexFunc(q.jobs, func(job *storedJob) bool { return job.ID == id && job.isDelayed(now) })
	if i < 0 {
		return nil
	}
	job := q.jobs[i]
	q.jobs = slices.Delete(q.jobs, i, i+1)
	return job
}

// endKeys releases what a job holds that was canceled before it ran.
func (b *Broker) endKeys(ctx context.Context, queue string, job *storedJob) error {
	return broker.SendErrorOf(jobkeys.New(b).Of(queue, job.ID, job.Headers).End(ctx, true))
}

func unknownQueue(name string) error {
	return broker.FieldFailure(broker.ErrUnknownQueue, "queue", "is unknown: the broker has no queue %s", name)
}

// Disconnect implements broker.Producer.
func (c *connection) Disconnect() { c.isClosed.Store(true) }

func (b *Broker) send(ctx context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkAvailable(ctx); err != nil {
		return broker.SendResult{}, err
	}
	q := b.queues[job.Queue]
	if q == nil {
		return broker.SendResult{}, unknownQueue(job.Queue)
	}
	now := b.now()
	if err := q.check(job, now); err != nil {
		return broker.SendResult{}, err
	}
	if job.HasChosenID {
		sent, found := q.sentTimes[job.ID]
		isRecent := found && now.Sub(sent) < duplicateWindow
		isNotDue := slices.ContainsFunc(q.jobs, func(stored *storedJob) bool { return stored.ID == job.ID && stored.isDelayed(now) })
		if isRecent || isNotDue {
			return broker.SendResult{ID: job.ID, Duplicate: true}, nil
		}
	}
	if limit := q.config.MaxBacklog; limit > 0 && int64(len(q.jobs)) >= limit {
		return broker.SendResult{}, broker.FieldFailure(broker.ErrQueueFull, "queue", "is full: maximum messages exceeded")
	}
	return broker.SendResult{ID: q.store(job, now)}, nil
}

func (b *Broker) checkAvailable(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: context.Cause(ctx)}
	case b.isUnavailable:
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: errors.New("the broker is unavailable")}
	}
	return nil
}

// check returns why the queue does not accept a job.
func (q *queue) check(job *broker.OutgoingJob, now time.Time) error {
	size := len(job.Payload)
	for name, values := range job.CommonHeaders() {
		for _, value := range values {
			size += len(name) + len(value)
		}
	}
	hasPriority := slices.ContainsFunc(q.config.Priorities, func(p broker.Priority) bool { return p.Name == job.PriorityName() })
	switch {
	case q.isDraining:
		return broker.FieldFailure(broker.ErrDraining, "queue", "is draining: the queue %s is being deleted and rejects new jobs", job.Queue)
	case !hasPriority:
		return broker.FieldFailure(broker.ErrUnknownPriority, "priority", "is %q; the queue %s has %s",
			job.PriorityName(), job.Queue, strings.Join(q.priorityNames(), ", "))
	case size > maxMessageBytes:
		return broker.FieldFailure(broker.ErrPayloadTooLarge, "payload", "has %d bytes; with the headers, the broker accepts at most %d",
			len(job.Payload), maxMessageBytes)
	case q.config.MaxBacklog > 0 && job.IsDelayed(now):
		return broker.UnsupportedField("at", "is not supported by the queue %s: %s delays no jobs of queues with maxBacklog", job.Queue, EngineName)
	case job.DeduplicateFor > duplicateWindow:
		return broker.UnsupportedField("deduplicateFor", "is %s; on %s, queues deduplicate for %s", job.DeduplicateFor, EngineName, duplicateWindow)
	}
	return nil
}

func (q *queue) priorityNames() (names []string) {
	for _, p := range q.config.Priorities {
		names = append(names, p.Name)
	}
	return names
}

// store returns the ID of the job.
func (q *queue) store(job *broker.OutgoingJob, now time.Time) string {
	q.lastSequence++
	id := strconv.FormatUint(q.lastSequence, 10)
	if job.IsDelayed(now) {
		id = job.ChosenOrRandomID()
	}
	if job.HasChosenID {
		id = job.ID
		q.sentTimes[id] = now
	}
	headers := job.CommonHeaders()
	if headers == nil {
		headers = map[string][]string{}
	}
	if job.Kind != "" {
		headers[broker.KindHeader] = []string{job.Kind}
	}
	q.jobs = append(q.jobs, &storedJob{due: job.DueTime, Message: broker.Message{
		ID: id, Kind: job.Kind, Payload: slices.Clone(job.Payload), Headers: headers, Priority: job.PriorityName(), SentTime: now,
	}})
	return id
}

// Job is a job that is not done.
type Job struct {
	broker.Message

	// DueTime is when workers may start it; zero: at once.
	DueTime time.Time
	// Attempt is the number of the next attempt, from 1. MaxAttempts is the last one.
	Attempt, MaxAttempts int
}

// Jobs returns the jobs of a queue in the order in which they were sent.
func (b *Broker) Jobs(name string) ([]Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return nil, fmt.Errorf("no queue %s", name)
	}
	var jobs []Job
	for _, job := range q.jobs {
		jobs = append(jobs, q.copyOf(job))
	}
	return jobs, nil
}

func (q *queue) copyOf(job *storedJob) Job {
	message := job.Message
	message.Payload = slices.Clone(message.Payload)
	message.Headers = maps.Clone(message.Headers)
	return Job{Message: message, DueTime: job.due, Attempt: job.attempts + 1, MaxAttempts: q.config.Retry.MaxAttempts}
}

// Take removes the next job that is due at a time, of the first priority that has one. Found is false if none is due.
func (b *Broker) Take(name string, due time.Time) (taken *Taken, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q == nil {
		return nil, false
	}
	for _, priority := range q.priorityNames() {
		i := slices.IndexFunc(q.jobs, func(job *storedJob) bool { return job.Priority == priority && !job.due.After(due) })
		if i < 0 {
			continue
		}
		job := q.jobs[i]
		q.jobs = slices.Delete(q.jobs, i, i+1)
		t := &Taken{Job: q.copyOf(job), broker: b, queue: q, stored: job, canceled: make(chan struct{})}
		q.start(t, b.now())
		return t, true
	}
	return nil, false
}

// Taken is a job that was taken from its queue. It is done unless it is put back or buried.
type Taken struct {
	Job

	broker *Broker
	queue  *queue
	stored *storedJob
	// canceled is closed when the job is canceled.
	canceled chan struct{}
}

// Now returns the time of the broker's clock.
func (t *Taken) Now() time.Time { return t.broker.Now() }

// PutBack makes the job due after a delay. A failure counts as an attempt.
func (t *Taken) PutBack(delay time.Duration, failure error) {
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	if failure != nil {
		t.stored.attempts++
		t.stored.err = failure.Error()
	}
	t.stored.due = t.broker.now().Add(delay)
	t.queue.jobs = append(t.queue.jobs, t.stored)
	state := jobstate.Waiting
	if t.stored.attempts > 0 {
		state = jobstate.Retrying
	}
	t.queue.end(t, t.broker.now(), func(info *jobstate.Info) {
		info.State, info.Attempt, info.NextTime, info.Error = state, t.stored.attempts, t.stored.due, t.stored.err
	})
}

// RetryDelay is the delay of the queue's retry policy, without its random part.
func (t *Taken) RetryDelay() time.Duration { return t.queue.config.Retry.DelayAfter(t.Attempt, 0.5) }

// Bury makes the job a dead letter, if the queue keeps them.
func (t *Taken) Bury(reason string) {
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	t.queue.end(t, t.broker.now(), func(info *jobstate.Info) { info.State, info.Error = jobstate.Dead, reason })
	if !t.queue.config.DeadLetter.Enabled {
		return
	}
	t.queue.deadLetters = append(t.queue.deadLetters, DeadLetter{Job: t.Job, Error: reason})
}

// DeadLetter is a job that is not retried. Attempt is the number of its last attempt.
type DeadLetter struct {
	Job

	// Error is why the last attempt failed.
	Error string
}

// DeadLetters returns the dead letters of a queue, oldest first.
func (b *Broker) DeadLetters(name string) []DeadLetter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queues[name]; q != nil {
		return slices.Clone(q.deadLetters)
	}
	return nil
}
