package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// attach waits until the queue is on the broker, and has its messages fetched until ctx
// ends.
func (w *Worker) attach(ctx context.Context, q *working) {
	for tries := 1; ctx.Err() == nil; tries++ {
		lanes, limiter, err := w.open(ctx, &q.settings)
		if err == nil {
			w.work(ctx, q, lanes, limiter)
			return
		}
		delay := broker.ReconnectDelay(tries, rand.Float64()) //nolint:gosec // to spread, not to hide
		w.log.Warn("A queue cannot be worked on", "queue", q.settings.Name, "error", err, "again", delay)
		w.metrics.fetchFailed(err)
		sleep(ctx, delay)
	}
}

// requests that a lane may have under way at a time: while one comes to its end, the next
// brings messages already.
const requests = 2

// open looks for all of a queue that is needed.
func (w *Worker) open(ctx context.Context, s *queueSettings) ([]broker.Consumer, broker.RateLimiter, error) {
	source, err := w.engine.Subscribe(ctx, s.Name)
	if err != nil {
		return nil, nil, err
	}
	var lanes []broker.Consumer
	for _, p := range s.Priorities {
		for range requests {
			lane, err := source.Consumer(ctx, p.Name)
			if err != nil {
				stop(lanes)
				return nil, nil, err
			}
			lanes = append(lanes, lane)
		}
	}
	limiter, err := source.RateLimiter(ctx)
	if err != nil {
		stop(lanes)
	}
	return lanes, limiter, err
}

func stop(lanes []broker.Consumer) {
	for _, l := range lanes {
		l.Stop()
	}
}

func (w *Worker) work(ctx context.Context, q *working, lanes []broker.Consumer, limiter broker.RateLimiter) {
	defer limiter.Stop()
	w.mu.Lock()
	if ctx.Err() != nil { // it is gone again
		w.mu.Unlock()
		stop(lanes)
		return
	}
	q.queue = newQueue(q.settings, limiter)
	w.arrange()
	w.mu.Unlock()
	w.log.Info("Working on a queue", "queue", q.settings.Name)

	for i, from := range lanes {
		w.background.Go(func() { w.fetch(ctx, q.queue.lanes[i/requests], from) })
	}
	w.meter(ctx, q.queue, limiter)
	<-ctx.Done()
}

// awaiting is how long a request waits for a message. A request is never broken off, so
// this is also how long it takes to stop.
const awaiting = time.Second

// fetch asks for a lane's messages whenever there is room for them.
func (w *Worker) fetch(ctx context.Context, l *lane, from broker.Consumer) {
	defer from.Stop()
	for failures := 0; ; {
		r, more := w.yard.ask(l)
		if !more {
			return
		}
		receive := func(d broker.Delivery) { w.yard.arrive(l, d, r.await) }
		var got int
		var err error
		if r.await {
			got, err = from.Next(ctx, awaiting, receive)
		} else {
			got, err = from.Fetch(ctx, r.number, receive)
		}
		w.yard.fetched(l, r, got, err)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		w.metrics.fetchFailed(err)
		delay := broker.ReconnectDelay(failures, rand.Float64()) //nolint:gosec // to spread, not to hide
		w.log.Warn("Messages cannot be fetched", "queue", l.queue.settings.Name, "error", err, "again", delay)
		sleep(ctx, delay)
	}
}

// meter gets times to begin at for a queue's messages from its rate limit.
func (w *Worker) meter(ctx context.Context, q *queue, limiter broker.RateLimiter) {
	for failures := 0; ; {
		number, more := w.yard.want(q)
		if !more {
			return
		}
		asked := time.Now()
		slots, err := limiter.Reserve(ctx, number)
		if err != nil {
			failures++
			w.log.Warn("The rate limit cannot be kept: nothing is begun", "queue", q.settings.Name, "error", err)
			sleep(ctx, broker.ReconnectDelay(failures, rand.Float64())) //nolint:gosec // to spread, not to hide
			continue
		}
		failures = 0
		w.yard.waited(q, slots[0].Sub(asked))
		// The next are asked for before these are due, or the way to the broker and back would
		// be time that nobody uses.
		w.yard.promise(q, len(slots))
		w.background.Go(func() { w.grant(ctx, q, slots) })
	}
}

// grant lets a job begin at each of those times.
func (w *Worker) grant(ctx context.Context, q *queue, slots []time.Time) {
	for len(slots) > 0 {
		due := 0
		for now := time.Now(); due < len(slots) && !slots[due].After(now); {
			due++
		}
		if due == 0 && ctx.Err() == nil {
			sleep(ctx, time.Until(slots[0]))
			continue
		}
		if due == 0 {
			due = len(slots) // it is over, and they are not waited for
		}
		w.yard.grant(q, due)
		slots = slots[due:]
	}
}

// ticking looks after what only time changes.
func (w *Worker) ticking(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.yard.tick()
			for _, h := range w.yard.due() {
				w.background.Go(func() { w.renew(ctx, h) })
			}
		}
	}
}

// renew renews a lease. If that fails it is due again at once, for as long as it lasts.
func (w *Worker) renew(ctx context.Context, h *held) {
	ctx, cancel := context.WithTimeout(ctx, h.lane.queue.settings.Lease/6)
	defer cancel()
	sent := time.Now()
	err := h.ExtendLease(ctx)
	w.metrics.leaseRenewed(err == nil)
	w.yard.renewed(h, sent, err == nil)
}
