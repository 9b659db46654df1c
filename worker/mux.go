package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

// Middleware wraps the handlers of a Mux, for example to log or to measure them.
type Middleware func(Handler) Handler

// Mux selects the handler of a job by its kind, which the producer sets: on NATS with the header Yardmaster-Kind, on asynq
// as the type of the task. Register handlers with Handle, and call Run.
//
//	mux := worker.NewMux()
//	mux.Use(logging, measuring)
//	worker.Handle(mux, "thumbnail", makeThumbnail, worker.WithConcurrency(4), worker.WithTimeout(time.Minute))
//	err := mux.Run(ctx, options)
//
// A job of a kind without a handler is retried a minute later or more, because a worker of a newer version may have its
// handler. After its last attempt it becomes a dead letter, or returns to a queue that keeps none; it is never dropped.
// HandleUnknown changes that.
//
// Registering a handler twice, without a kind, with invalid options, or after the first job is a mistake in the program,
// and panics.
type Mux struct {
	mu         sync.Mutex
	kinds      map[string]*kindHandler
	middleware []Middleware
	unknown    Handler
	// inUse is set when handlers is complete.
	inUse bool
	// handlers of the kinds with the middleware around them.
	handlers       map[string]Handler
	unknownHandler Handler
}

type kindHandler struct {
	handler Handler
	kindOptions
	// slots bound the jobs that run at a time if they do not run in a worker of the Mux.
	slots chan struct{}
}

type kindOptions struct {
	concurrency int
	timeout     time.Duration
	retry       RetryPolicy
	decode      func(payload []byte, target any) error
	errs        []error
}

func (o *kindOptions) require(valid bool, format string, values ...any) {
	if !valid {
		o.errs = append(o.errs, fmt.Errorf(format, values...))
	}
}

// HandlerOption is an option of a handler in a Mux.
type HandlerOption func(*kindOptions)

// WithConcurrency limits the number of jobs of the kind that run at a time in a worker, at least 1. Jobs that wait for
// others of their kind occupy no slot of the worker. By default, only Config.Concurrency is the limit.
func WithConcurrency(jobs int) HandlerOption {
	return func(o *kindOptions) {
		o.require(jobs >= 1, "the concurrency is %d, must be at least 1", jobs)
		o.concurrency = jobs
	}
}

// WithTimeout limits the time that the handler has for a job. If the queue or the message has a timeout too, the shorter timeout applies.
// By default, only their timeout applies.
func WithTimeout(timeout time.Duration) HandlerOption {
	return func(o *kindOptions) {
		o.require(timeout > 0, "the timeout is %s, must be more than 0", timeout)
		o.timeout = timeout
	}
}

// WithRetry replaces the fields of the queue's retry policy that are set in the policy. An asynq task has at most the
// attempts that its producer allows.
func WithRetry(policy RetryPolicy) HandlerOption {
	return func(o *kindOptions) {
		queue := broker.DefaultQueueConfig("any")
		queue.Owner.UID, queue.Retry = unusedOwnerUID, policy.over(queue.Retry)
		err := queue.Validate()
		o.require(err == nil, "%w", err)
		o.retry = policy
	}
}

// WithDecoder replaces json.Unmarshal, with which the function Handle decodes payloads.
func WithDecoder(decode func(payload []byte, target any) error) HandlerOption {
	return func(o *kindOptions) {
		o.require(decode != nil, "the decoder is nil")
		o.decode = decode
	}
}

// NewMux returns a Mux without handlers.
func NewMux() *Mux {
	return &Mux{kinds: map[string]*kindHandler{}, unknown: func(_ context.Context, job *Job) error { return &unknownKindError{job.Kind} }}
}

// Handle registers the handler of a kind of jobs whose payloads are a T as JSON. A payload that cannot be decoded makes
// the job a dead letter at once, because no attempt can succeed.
func Handle[T any](m *Mux, kind string, handler func(ctx context.Context, job *Job, args T) error, options ...HandlerOption) {
	o := kindOptions{decode: json.Unmarshal}
	for _, option := range options {
		option(&o)
	}
	decoding := Handler(nil)
	if handler != nil {
		decoding = func(ctx context.Context, job *Job) error {
			var args T
			if err := o.decode(job.Payload, &args); err != nil {
				return DeadLetter(fmt.Sprintf("the payload is invalid for the kind %q: %v", kind, err))
			}
			return handler(ctx, job, args)
		}
	}
	m.Handle(kind, decoding, options...)
}

// HandleResult is Handle for a handler with a result, which is stored as JSON if the queue keeps results. A result that
// cannot be stored makes the job a dead letter, because its work is done and would be repeated in vain.
func HandleResult[T, R any](m *Mux, kind string, handler func(ctx context.Context, job *Job, args T) (R, error), options ...HandlerOption) {
	if handler == nil {
		Handle[T](m, kind, nil, options...)
		return
	}
	Handle(m, kind, func(ctx context.Context, job *Job, args T) error {
		result, err := handler(ctx, job, args)
		if err != nil {
			return err
		}
		if err := job.SetResult(result); err != nil {
			return DeadLetter(err.Error())
		}
		return nil
	}, options...)
}

// Handle registers the handler of a kind of jobs. It decodes the payload itself.
func (m *Mux) Handle(kind string, handler Handler, options ...HandlerOption) {
	k := &kindHandler{handler: handler}
	for _, option := range options {
		option(&k.kindOptions)
	}
	k.require(kind != "", "there is no kind; use HandleUnknown for jobs without one")
	k.require(handler != nil, "the handler is nil")
	if len(k.errs) > 0 {
		panic(fmt.Sprintf("worker: the handler of the kind %q: %v", kind, errors.Join(k.errs...)))
	}
	m.change(func() {
		if m.kinds[kind] != nil {
			panic(fmt.Sprintf("worker: the kind %q has two handlers", kind))
		}
		m.kinds[kind] = k
	})
}

// HandleUnknown registers the handler of jobs without a kind, and of kinds without a handler.
func (m *Mux) HandleUnknown(handler Handler) {
	if handler == nil {
		panic("worker: the handler of unknown kinds is nil")
	}
	m.change(func() { m.unknown = handler })
}

// Use appends middleware. The first middleware is the outermost: it is called first, and sees the result of the others. Middleware
// applies to all jobs, also if their kind is unknown or their payload is invalid, and to handlers that were registered before.
func (m *Mux) Use(middleware ...Middleware) {
	m.change(func() { m.middleware = append(m.middleware, middleware...) })
}

func (m *Mux) change(apply func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse {
		panic("worker: the Mux was changed after its first use")
	}
	apply()
}

// Run creates a worker that runs jobs with the handlers of the Mux, and runs it like the function Run.
func (m *Mux) Run(ctx context.Context, options Options) error {
	w, err := m.NewWorker(options)
	if err != nil {
		return err
	}
	return runUntilSignal(ctx, w)
}

// NewWorker returns a worker that runs jobs with the handlers of the Mux.
func (m *Mux) NewWorker(options Options) (*Worker, error) {
	m.prepare()
	return newWorker(options, m.dispatch, m)
}

// HandleJob is a Handler that runs a job without a worker of the Mux, for example in a test. The retry policies of kinds
// do not apply, and a job that waits for others of its kind occupies a slot of its worker.
func (m *Mux) HandleJob(ctx context.Context, job *Job) error {
	m.prepare()
	k := m.kinds[job.Kind]
	if k == nil {
		return m.dispatch(ctx, job)
	}
	if k.slots != nil {
		select {
		case k.slots <- struct{}{}:
			defer func() { <-k.slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if k.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, k.timeout, errJobTimeout)
		defer cancel()
	}
	return m.dispatch(ctx, job)
}

// prepare calls the middleware, once for each handler.
func (m *Mux) prepare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inUse {
		return
	}
	m.inUse, m.handlers, m.unknownHandler = true, map[string]Handler{}, m.wrap(m.unknown)
	for kind, k := range m.kinds {
		m.handlers[kind] = m.wrap(k.handler)
		if k.concurrency > 0 {
			k.slots = make(chan struct{}, k.concurrency)
		}
	}
}

func (m *Mux) wrap(handler Handler) Handler {
	for _, middleware := range slices.Backward(m.middleware) {
		handler = middleware(handler)
	}
	return handler
}

func (m *Mux) dispatch(ctx context.Context, job *Job) error {
	if handler := m.handlers[job.Kind]; handler != nil {
		return handler(ctx, job)
	}
	return m.unknownHandler(ctx, job)
}

func (m *Mux) concurrencyByKind() map[string]int {
	limits := map[string]int{}
	for kind, k := range m.kinds {
		if k.concurrency > 0 {
			limits[kind] = k.concurrency
		}
	}
	return limits
}

// over returns the base policy with the fields that are set in p.
func (p *RetryPolicy) over(base broker.RetryPolicy) broker.RetryPolicy {
	setIfPresent(&base.MaxAttempts, p.MaxAttempts)
	setIfPresent(&base.InitialDelay, (*time.Duration)(p.InitialDelay))
	setIfPresent(&base.MaxDelay, (*time.Duration)(p.MaxDelay))
	setIfPresent(&base.MultiplierPercent, p.MultiplierPercent)
	setIfPresent(&base.JitterPercent, p.JitterPercent)
	switch { // a field that is set has precedence over a field that is not
	case p.MaxDelay == nil:
		base.MaxDelay = max(base.MaxDelay, base.InitialDelay)
	case p.InitialDelay == nil:
		base.InitialDelay = min(base.InitialDelay, base.MaxDelay)
	}
	return base
}

// unknownKindDelay is the minimum delay of a job whose kind has no handler, because a rollout takes longer than the delays between other
// attempts.
const unknownKindDelay = time.Minute

type unknownKindError struct{ kind string }

func (e *unknownKindError) Error() string {
	if e.kind == "" {
		return "the job has no kind, and the worker has no handler for such jobs"
	}
	return fmt.Sprintf("the worker has no handler for the kind %.128q", e.kind)
}

// IsUnknownKind reports whether err is about a job whose kind has no handler in a Mux.
func IsUnknownKind(err error) bool { return isErrorType[*unknownKindError](err) }

// staysInQueue reports whether a job whose kind has no handler returns to its queue after its last attempt, because the queue would drop
// it.
func staysInQueue(job *Job, queue *scheduler.QueueConfig, err error) bool {
	return IsUnknownKind(err) && job.Attempt >= job.MaxAttempts && !queue.DeadLetter.Enabled
}
