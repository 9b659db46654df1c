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
	figures broker.QueueStats
}

// Stats of a queue, read at most maxAge ago, whoever had them read.
func (l *Conn) Stats(ctx context.Context, queue string, maxAge time.Duration) (broker.QueueStats, error) {
	l.mu.Lock()
	engine, problem := l.engine, l.problem
	if problem != nil || engine == nil {
		l.mu.Unlock()
		_, err := l.Engine()
		return broker.QueueStats{}, err
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
	ctx, cancel := context.WithTimeout(ctx, l.manager.options.RequestTimeout)
	defer cancel()
	began := time.Now()
	figures, err := engine.Stats(ctx, queue)
	observeRequest(began, err)
	if err != nil {
		l.CheckHealth(err)
		return broker.QueueStats{}, err
	}
	r.at, r.figures = began, figures
	return figures, nil
}

// NotifyWhenReady has listeners told, once, when the queue has a message for workers. It returns at
// once; to ask again while the answer is outstanding changes nothing.
func (l *Conn) NotifyWhenReady(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine == nil || l.problem != nil || l.awaited[queue] != nil {
		return
	}
	engine := l.engine
	ctx, cancel := context.WithCancel(l.engineCtx)
	l.awaited[queue] = cancel
	l.manager.background.Go(func() {
		err := engine.WaitForMessage(ctx, queue)
		if !l.finishWait(ctx, queue) {
			return
		}
		cancel()
		if err == nil {
			l.manager.notifyListeners(Notification{Key: l.Key, Queue: queue})
		} else {
			l.CheckHealth(err)
		}
	})
}

// finishWait takes note that the wait for a queue is over, unless nobody waits any more.
func (l *Conn) finishWait(ctx context.Context, queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return false // its place may be another's by now
	}
	delete(l.awaited, queue)
	delete(l.queues, queue) // what was read before is history
	return true
}

// ForgetQueue drops what is kept of a queue that is gone.
func (l *Conn) ForgetQueue(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.queues, queue)
	if cancel := l.awaited[queue]; cancel != nil {
		cancel()
		delete(l.awaited, queue)
	}
}
