package brokerconn

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// timedStats are stats with the time at which reading them started.
type timedStats struct {
	broker.QueueStats
	readTime time.Time
}

// Stats returns the stats of a queue, at most maxAge old. All callers share a read, except that a maxAge of 0 starts a new read,
// because a read in progress may not show the caller's own change.
func (c *Conn) Stats(ctx context.Context, queue string, maxAge time.Duration) (broker.QueueStats, error) {
	s, err := c.currentSession()
	if err != nil {
		return broker.QueueStats{}, err
	}
	c.mu.Lock()
	cached, found := s.stats[queue]
	c.mu.Unlock()
	switch {
	case maxAge == 0:
		s.reads.Forget(queue)
	case found && time.Since(cached.readTime) <= maxAge:
		return cached.QueueStats, nil
	}
	stats, err, _ := s.reads.Do(queue, func() (any, error) {
		return c.readStats(context.WithoutCancel(ctx), s, queue) // other callers may wait for the read too
	})
	if err != nil {
		return broker.QueueStats{}, err
	}
	return stats.(broker.QueueStats), nil //nolint:forcetypeassert // readStats returns it
}

func (c *Conn) readStats(ctx context.Context, s *session, queue string) (broker.QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, c.manager.options.RequestTimeout)
	defer cancel()
	start := time.Now()
	stats, err := s.engine.Stats(ctx, queue)
	recordRead(start, err)
	if err != nil {
		c.CheckHealth(err)
		// The message of a request's timeout does not contain the cause.
		if _, problem := c.currentSession(); broker.ClassOf(err) == broker.ClassUnreachable && problem != nil {
			err = problem
		}
		return broker.QueueStats{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if start.After(s.stats[queue].readTime) {
		s.stats[queue] = timedStats{stats, start}
	}
	return stats, nil
}

// NotifyWhenReady notifies listeners once when the queue has a message for workers. It does not wait. A second call has no effect until
// the notification is sent.
func (c *Conn) NotifyWhenReady(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session
	if s == nil || c.problem != nil || s.waits[queue] != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.waits[queue] = cancel
	c.manager.background.Go(func() {
		err := s.engine.WaitForMessage(ctx, queue)
		c.mu.Lock()
		isForgotten := ctx.Err() != nil // the entry of the queue may belong to a newer wait
		if !isForgotten {
			delete(s.waits, queue)
			delete(s.stats, queue) // they were read before the message arrived
		}
		c.mu.Unlock()
		if isForgotten {
			return
		}
		cancel()
		if err == nil {
			c.manager.notifyListeners(Notification{Key: c.Key, Queue: queue})
		} else {
			c.CheckHealth(err)
		}
	})
}

// ForgetQueue drops the stats of a queue that no longer exists, and the wait for its next message.
func (c *Conn) ForgetQueue(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return
	}
	delete(c.session.stats, queue)
	if cancel := c.session.waits[queue]; cancel != nil {
		cancel()
		delete(c.session.waits, queue)
	}
}
