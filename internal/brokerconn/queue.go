package brokerconn

import (
	"context"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// reading is what was last read of one queue.
type reading struct {
	mu      sync.Mutex // held while it is read: others wait for the same answer
	at      time.Time
	figures broker.Figures
}

// Figures of a queue, read at most maxAge ago, whoever had them read.
func (l *Line) Figures(ctx context.Context, queue string, maxAge time.Duration) (broker.Figures, error) {
	l.mu.Lock()
	engine, problem := l.engine, l.problem
	if problem != nil || engine == nil {
		l.mu.Unlock()
		_, err := l.Engine()
		return broker.Figures{}, err
	}
	r, there := l.queues[queue]
	if !there {
		r = &reading{}
		l.queues[queue] = r
	}
	l.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) <= maxAge {
		return r.figures, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.keeper.options.Patience)
	defer cancel()
	began := time.Now()
	figures, err := engine.Figures(ctx, queue)
	observeRequest(began, err)
	if err != nil {
		l.Doubt(err)
		return broker.Figures{}, err
	}
	r.at, r.figures = began, figures
	return figures, nil
}

// Await has listeners told, once, when the queue has a message for workers. It returns at
// once; to ask again while the answer is outstanding changes nothing.
func (l *Line) Await(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine == nil || l.problem != nil || l.awaited[queue] != nil {
		return
	}
	engine := l.engine
	ctx, cancel := context.WithCancel(l.life)
	l.awaited[queue] = cancel
	l.keeper.closing.Go(func() {
		err := engine.Wait(ctx, queue)
		if !l.answered(ctx, queue) {
			return
		}
		cancel()
		if err == nil {
			l.keeper.tell(Event{Key: l.Key, Queue: queue})
		} else {
			l.Doubt(err)
		}
	})
}

// answered takes note that the wait for a queue is over, unless nobody waits any more.
func (l *Line) answered(ctx context.Context, queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return false // its place may be another's by now
	}
	delete(l.awaited, queue)
	delete(l.queues, queue) // what was read before is history
	return true
}

// Forget drops what is kept of a queue that is gone.
func (l *Line) Forget(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.queues, queue)
	if cancel := l.awaited[queue]; cancel != nil {
		cancel()
		delete(l.awaited, queue)
	}
}
