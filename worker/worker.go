package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Run runs a worker until ctx ends or the process is told to end, and has drained it.
func Run(ctx context.Context, options Options, handler Handler) error {
	w, err := New(options, handler)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return w.Run(ctx)
}

// Worker works on the jobs of some queues.
type Worker struct {
	options Options
	handler Handler
	log     *slog.Logger
	metrics *metrics
	yard    *yard
	started time.Time
	// succeeded and failed are how many times a handler did.
	succeeded, failed atomic.Int64

	mu sync.Mutex
	// settings that hold, and the queues that are worked on by them.
	settings  *settings
	queues    map[string]*working
	executors int
	engine    broker.Engine
	// leaving: it is about to end, once it is drained or the deadline is over. Then ending is
	// closed.
	leaving  bool
	deadline time.Time
	ending   chan struct{}

	// handling is the context of handlers, settling that of what is told to the broker.
	handling, settling context.Context
	abandon            context.CancelCauseFunc
	background         sync.WaitGroup
	workers            sync.WaitGroup
}

// working is a queue that is worked on, or about to be.
type working struct {
	settings queueSettings
	queue    *queue // once it is there
	stop     context.CancelFunc
}

// ErrDrainTimeout is returned by Run if jobs were still running when the time for them to
// finish was over.
var ErrDrainTimeout = errors.New("jobs were still running when the drain timeout was over")

// New makes a worker. It reads the configuration, and connects to nothing.
func New(options Options, handler Handler) (*Worker, error) {
	if handler == nil {
		return nil, errors.New("there is no handler")
	}
	settings, err := options.read()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		options: options, handler: handler, log: options.Logger, settings: settings, queues: map[string]*working{}, started: time.Now(),
		ending: make(chan struct{}),
	}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.yard = newYard(time.Now, w.giveBack)
	w.metrics = newMetrics(w)
	return w, nil
}

// Run works until ctx ends, or the admin API is told that the Pod does, and then drains: it
// takes nothing more, hands back what it has not begun, and waits for what runs as long as
// the drain timeout lets it.
func (w *Worker) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-w.ending:
			stop()
		case <-ctx.Done():
		}
	}()
	handling, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()
	w.handling, w.settling, w.abandon = handling, settling, abandon
	defer abandon(nil)

	stopAdmin, err := w.serve(ctx, w.settings.adminAddress)
	if err != nil {
		return err
	}
	defer stopAdmin()
	reload, err := w.watch(settling)
	if err != nil {
		return err
	}

	engine, err := w.connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer engine.Disconnect()
	w.mu.Lock()
	w.engine = engine
	w.mu.Unlock()
	w.apply(settling, w.current())
	w.background.Go(func() { w.ticking(settling) })

	for {
		select {
		case <-reload:
			w.reload(settling)
		case <-ctx.Done():
			return w.leave(context.WithoutCancel(ctx), stopSettling)
		}
	}
}

func (w *Worker) current() *settings {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settings
}

// connect connects, however long it takes. Only what no time will mend is an error.
func (w *Worker) connect(ctx context.Context) (broker.Engine, error) {
	name := w.options.Pod
	if name == "" {
		name = "yardmaster worker"
	}
	settings := w.current()
	for tries := 1; ; tries++ {
		engine, err := settings.broker.connect(ctx, name)
		if err == nil {
			w.log.Info("Connected to the broker")
			return engine, nil
		}
		if class := broker.ClassOf(err); class == broker.ClassInvalid || ctx.Err() != nil {
			return nil, err
		}
		delay := broker.ReconnectDelay(tries, rand.Float64()) //nolint:gosec // to spread, not to hide
		w.log.Warn("The broker cannot be reached", "error", err, "again", delay)
		sleep(ctx, delay)
	}
}

// depart has the worker drain and end, by a deadline that counts from the first time.
func (w *Worker) depart() (deadline time.Time) {
	w.mu.Lock()
	if !w.leaving {
		w.log.Info("Draining to end", "timeout", w.settings.drainTimeout)
		w.leaving, w.deadline = true, time.Now().Add(w.settings.drainTimeout)
		close(w.ending)
	}
	deadline = w.deadline
	w.mu.Unlock()
	w.yard.drain()
	return deadline
}

// leave drains the worker, and ends all that it does.
func (w *Worker) leave(ctx context.Context, stopSettling func()) error {
	drained := w.quietBy(ctx, w.depart())
	if !drained {
		// Those who listen to their context have a moment to say so.
		w.abandon(errLeaving)
		w.quietBy(ctx, time.Now().Add(abandonedFor))
	}
	w.yard.close()
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
	w.workers.Wait()
	w.log.Info("Drained")
	return nil
}

// abandonedFor is how long handlers have to return once their context has ended.
const abandonedFor = 5 * time.Second

// quietBy waits until nothing is in flight, and tells whether that is so by the deadline,
// or when ctx ends.
func (w *Worker) quietBy(ctx context.Context, deadline time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return w.yard.quiet(ctx.Done())
}

// apply makes settings hold, until ctx ends.
func (w *Worker) apply(ctx context.Context, s *settings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settings = s
	for ; w.executors < s.concurrency; w.executors++ {
		w.workers.Go(w.executor)
	}
	wanted := map[string]bool{}
	var retired []*queue
	for _, q := range s.queues {
		wanted[q.Name] = true
		if now, there := w.queues[q.Name]; there {
			if same(now.settings, q) {
				continue
			}
			retired = w.remove(q.Name, retired)
		}
		w.add(ctx, q)
	}
	for name := range w.queues {
		if !wanted[name] {
			retired = w.remove(name, retired)
		}
	}
	w.yard.retire(retired)
	w.arrange()
}

func same(a, b queueSettings) bool {
	return a.weight == b.weight && a.breaker == b.breaker && a.StrictPriority == b.StrictPriority && a.Lease == b.Lease &&
		a.Retry == b.Retry && a.DeadLetter == b.DeadLetter && slices.Equal(a.Priorities, b.Priorities)
}

func (w *Worker) remove(name string, retired []*queue) []*queue {
	gone := w.queues[name]
	delete(w.queues, name)
	gone.stop()
	if gone.queue != nil {
		retired = append(retired, gone.queue)
	}
	return retired
}

// add begins to work on a queue, once it is there.
func (w *Worker) add(ctx context.Context, s queueSettings) {
	ctx, stop := context.WithCancel(ctx)
	q := &working{settings: s, stop: stop}
	w.queues[s.Name] = q
	w.background.Go(func() { w.attach(ctx, q) })
}

// arrange tells the yard which queues there are.
func (w *Worker) arrange() {
	var queues []*queue
	for _, s := range w.settings.queues {
		if q := w.queues[s.Name]; q != nil && q.queue != nil {
			queues = append(queues, q.queue)
		}
	}
	w.yard.set(queues, w.settings.concurrency, w.settings.maxInFlight)
}
