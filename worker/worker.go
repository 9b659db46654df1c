package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/login"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

// ErrDrainTimeout is returned by Run if jobs were still running at the end of the drain timeout.
var ErrDrainTimeout = errors.New("jobs were still running at the end of the drain timeout")

// handlerGracePeriod is the time that handlers have to return after their context is canceled.
const handlerGracePeriod = 5 * time.Second

// Worker runs the jobs of its queues. Create it with New.
type Worker struct {
	options Options
	handler Handler
	// mux is nil if the handler does not belong to a Mux.
	mux       *Mux
	log       *slog.Logger
	metrics   *workerMetrics
	tracer    jobTracer
	scheduler *scheduler.Scheduler
	now       func() time.Time
	startedAt time.Time
	// adminShutdownTimeout is longer in tests, whose machine may be busy.
	adminShutdownTimeout time.Duration
	// succeeded, failed and snoozed count handler calls.
	succeeded, failed, snoozed atomic.Int64
	// returned has the messages that jobs gave back, until they are due.
	returned returnedMessages
	// availability of the handler; nil if it is always available.
	availability *availability
	attempts     attemptRecorder
	progress     progressBoard
	reports      reportBoard
	// keys of unique jobs and batches, set before the first job starts.
	keys *jobkeys.Keys

	mu sync.Mutex
	// settings currently in effect, and the queues that belong to them.
	settings      *workerSettings
	queues        map[string]*attachedQueue
	executorCount int
	engine        broker.Engine
	// shutdown ends when the worker begins to drain to exit, which ends at drainDeadline at the latest.
	shutdown        context.Context
	requestShutdown context.CancelFunc
	drainDeadline   time.Time

	// handlerContext is passed to handlers. settleContext, for requests that settle messages, outlives it.
	handlerContext, settleContext context.Context
	cancelHandlers                context.CancelCauseFunc
	// interrupted: the drain timeout ended while jobs were running.
	interrupted atomic.Bool
	background  sync.WaitGroup
	executors   sync.WaitGroup
}

// attachedQueue is a queue from which the worker takes messages, or is about to take messages.
type attachedQueue struct {
	config scheduler.QueueConfig
	// scheduled is nil until the queue is found on the broker.
	scheduled *scheduler.ScheduledQueue
	// recorder is nil if the queue does not keep the states of its jobs.
	recorder *stateRecorder
	stop     context.CancelFunc
}

// Run creates a worker and runs it until ctx ends or the process receives SIGTERM or SIGINT. It returns after the worker has drained.
func Run(ctx context.Context, options Options, handler Handler) error {
	w, err := New(options, handler)
	if err != nil {
		return err
	}
	return runUntilSignal(ctx, w)
}

func runUntilSignal(ctx context.Context, w *Worker) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return w.Run(ctx)
}

// New returns a worker. It reads and validates the configuration, but does not connect to the broker.
func New(options Options, handler Handler) (*Worker, error) {
	if handler == nil {
		return nil, errors.New("handler must not be nil")
	}
	return newWorker(options, handler, nil)
}

func newWorker(options Options, handler Handler, mux *Mux) (*Worker, error) {
	settings, err := options.loadSettings()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		options: options, handler: handler, mux: mux, log: cmp.Or(options.Logger, slog.Default()), settings: settings,
		queues: map[string]*attachedQueue{}, now: time.Now, startedAt: time.Now(), tracer: newJobTracer(options.TracerProvider),
		adminShutdownTimeout: defaultAdminShutdownTimeout,
	}
	w.shutdown, w.requestShutdown = context.WithCancel(context.Background())
	w.progress.now = func() time.Time { return w.now() }
	w.scheduler = scheduler.New(func() time.Time { return w.now() }, w.releaseUnused)
	if mux != nil {
		w.scheduler.SetKindLimits(mux.concurrencyByKind())
	}
	if options.Available != nil {
		w.availability = newAvailability(options.Available, w.scheduler.Hold, w.log)
	}
	if w.metrics, err = newMetrics(w); err != nil {
		return nil, err
	}
	return w, nil
}

// Run takes and runs jobs until ctx ends or the admin API receives /prestop. Then it drains: it takes no more messages, gives back messages
// that have not started, and waits for running jobs, for the drain timeout at most. If jobs are still running then, it cancels their
// context and returns ErrDrainTimeout.
//
// It returns at once with an error if the configuration is invalid, or if the broker ends the connection for good: then nothing can be
// taken or settled, and the broker delivers the running jobs again.
func (w *Worker) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.shutdown, stop)() //nolint:contextcheck // a request to shut down does not depend on ctx
	handlerContext, cancelHandlers := context.WithCancelCause(context.WithoutCancel(ctx))
	settleContext, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()
	w.handlerContext, w.settleContext, w.cancelHandlers = handlerContext, settleContext, cancelHandlers
	defer cancelHandlers(nil)

	stopServers, err := w.startServers(ctx)
	if err != nil {
		return err
	}
	defer stopServers()
	configChanged, err := w.watchConfigFile(settleContext)
	if err != nil {
		return err
	}

	engine, err := w.connectWithRetry(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer engine.Disconnect()
	var keys *jobkeys.Keys // nil if the engine has no unique jobs and no batches
	if store, isStore := engine.(broker.KeyStore); isStore {
		keys = jobkeys.New(store)
	}
	ender, canEnd := engine.(broker.Ender)
	var ended <-chan struct{} // nil if the engine always reconnects
	if canEnd {
		ended = ender.Ended()
	}
	w.mu.Lock()
	w.engine, w.keys = engine, keys
	w.mu.Unlock()
	w.applySettings(settleContext, w.currentSettings())
	w.background.Go(func() { w.maintainLeases(settleContext) })
	if w.availability != nil {
		w.background.Go(func() { w.availability.watch(settleContext) })
	}

	for {
		select {
		case <-configChanged:
			w.reloadConfig(settleContext)
		case <-ended:
			return fmt.Errorf("the broker ended the connection for good: %w", ender.EndReason())
		case <-ctx.Done():
			return w.drainAndStop(context.WithoutCancel(ctx), stopSettling)
		}
	}
}

func (w *Worker) currentSettings() *workerSettings {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settings
}

// connectWithRetry connects to the broker, and retries until ctx ends. It returns an error at once if the configuration is invalid.
func (w *Worker) connectWithRetry(ctx context.Context) (broker.Engine, error) {
	name := cmp.Or(w.options.Pod, "yardmaster worker")
	settings := w.currentSettings()
	for failures := 1; ; failures++ {
		engine, engineName, err := login.Connect(ctx, &settings.broker, name)
		if err == nil {
			w.tracer.setEngine(engineName)
			w.log.Info("Connected to the broker")
			return engine, nil
		}
		if class := broker.ClassOf(err); class == broker.ClassInvalid || ctx.Err() != nil {
			return nil, err
		}
		w.waitToRetry(ctx, failures, "Failed to connect to the broker", "error", err)
	}
}

// waitToRetry waits after a number of consecutive failures, and logs fewer of them the longer an outage lasts.
func (w *Worker) waitToRetry(ctx context.Context, failures int, message string, attributes ...any) {
	delay := broker.RetryDelay(failures)
	if failures&(failures-1) == 0 {
		w.log.Warn(message, append(attributes, "failures", failures, "retryAfter", delay)...)
	}
	_ = clock.SleepContext(ctx, delay)
}

// beginShutdown makes the worker drain and exit. The drain timeout starts with the first call.
func (w *Worker) beginShutdown() (deadline time.Time) {
	w.mu.Lock()
	if w.shutdown.Err() == nil {
		w.log.Info("Draining before exit", "timeout", w.settings.drainTimeout)
		w.drainDeadline = time.Now().Add(w.settings.drainTimeout)
		w.requestShutdown()
	}
	deadline = w.drainDeadline
	w.mu.Unlock()
	w.scheduler.Drain()
	return deadline
}

func (w *Worker) drainAndStop(ctx context.Context, stopSettling func()) error {
	drained := w.waitUntilDrained(ctx, w.beginShutdown())
	if !drained {
		// Handlers that observe their context can still return their job to the queue.
		w.interrupted.Store(true)
		w.cancelHandlers(errShutdown)
		w.waitUntilDrained(ctx, time.Now().Add(handlerGracePeriod))
	}
	w.scheduler.Close()
	w.mu.Lock()
	for _, q := range w.queues {
		q.stop()
	}
	w.mu.Unlock()
	stopSettling()
	w.background.Wait()
	if !drained {
		return ErrDrainTimeout
	}
	if overdue := w.scheduler.Snapshot().Overdue; overdue > 0 {
		w.log.Warn("Drained, except for handlers that ignore the end of their context; their jobs are delivered again", "handlers", overdue)
		return nil
	}
	w.executors.Wait()
	w.log.Info("Drained")
	return nil
}

// waitUntilDrained waits until no message is left, the deadline, or the end of ctx. It reports whether the worker is drained,
// and interrupted no job for that.
func (w *Worker) waitUntilDrained(ctx context.Context, deadline time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return w.scheduler.WaitUntilDrained(ctx) && !w.interrupted.Load()
}

// applySettings makes the settings take effect. The queues that it attaches end with ctx.
func (w *Worker) applySettings(ctx context.Context, s *workerSettings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settings = s
	for ; w.executorCount < s.concurrency; w.executorCount++ {
		w.executors.Go(w.runExecutor)
	}
	configured := map[string]bool{}
	var retired []*scheduler.ScheduledQueue
	for i := range s.queues {
		config := &s.queues[i]
		configured[config.Name] = true
		if current, found := w.queues[config.Name]; found {
			if reflect.DeepEqual(current.config, *config) {
				continue
			}
			retired = w.detachQueue(config.Name, retired)
		}
		queueContext, stop := context.WithCancel(ctx)
		q := &attachedQueue{config: *config, stop: stop}
		w.queues[config.Name] = q
		w.background.Go(func() { w.consumeWithRetry(queueContext, q) })
	}
	for name := range w.queues {
		if !configured[name] {
			retired = w.detachQueue(name, retired)
		}
	}
	w.scheduler.RetireQueues(retired)
	w.configureScheduler()
}

// configureScheduler passes the queues that were found on the broker to the scheduler. It requires the lock.
func (w *Worker) configureScheduler() {
	var queues []*scheduler.ScheduledQueue
	for i := range w.settings.queues {
		if q := w.queues[w.settings.queues[i].Name]; q != nil && q.scheduled != nil {
			queues = append(queues, q.scheduled)
		}
	}
	w.scheduler.SetQueues(queues, scheduler.MessageLimits{Concurrency: w.settings.concurrency, MaxInFlight: w.settings.maxInFlight})
}
