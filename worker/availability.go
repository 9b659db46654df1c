package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	availabilityInterval = time.Second
	availabilityTimeout  = 5 * time.Second
)

// notChecked is the reason before the first check.
const notChecked = "not checked yet"

// availability knows whether the handler can run jobs, and holds the worker while it cannot.
type availability struct {
	check func(context.Context) error
	hold  func(bool)
	log   *slog.Logger
	// suspected has a value if the handler has to be checked at once.
	suspected chan struct{}

	mu sync.Mutex
	// reason why the handler is unavailable; empty if it is available.
	reason string
}

// newAvailability holds the worker until the first check.
func newAvailability(check func(context.Context) error, hold func(bool), log *slog.Logger) *availability {
	a := &availability{check: check, hold: hold, log: log, suspected: make(chan struct{}, 1), reason: notChecked}
	hold(true)
	return a
}

// suspect holds the worker until the next check, which follows at once: the handler could not run a job.
func (a *availability) suspect() {
	if a == nil {
		return
	}
	a.hold(true)
	select {
	case a.suspected <- struct{}{}:
	default:
	}
}

// watch checks the handler until ctx ends.
func (a *availability) watch(ctx context.Context) {
	ticker := time.NewTicker(availabilityInterval)
	defer ticker.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, availabilityTimeout)
		err := a.check(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		reason := ""
		if err != nil {
			reason = broker.TruncateText(err.Error())
		}
		a.mu.Lock()
		before := a.reason
		a.reason = reason
		a.mu.Unlock()
		switch {
		case reason == "" && before != "":
			a.log.Info("The handler is available: the worker takes jobs")
		case reason != "" && (before == "" || before == notChecked):
			a.log.Warn("The handler is not available: the worker takes no jobs until it is", "reason", reason)
		}
		a.hold(reason != "")
		select {
		case <-ctx.Done():
			return
		case <-a.suspected:
		case <-ticker.C:
		}
	}
}

// unavailable returns why the handler is unavailable; empty if it is available.
func (a *availability) unavailable() string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

// maxReturnDelay is the longest delay with which a message that was given back counts as work that is due. A handler that gives back a job
// for longer plans it for later.
const maxReturnDelay = time.Minute

// returnedMessages counts messages that were given back and are not due yet. Its memory is bounded by maxReturnDelay. It is safe for
// concurrent use.
type returnedMessages struct {
	mu sync.Mutex
	// due is the number of messages by the second in which they are due.
	due map[int64]int
}

func (r *returnedMessages) add(now time.Time, delay time.Duration) {
	if delay <= 0 || delay > maxReturnDelay {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due == nil {
		r.due = map[int64]int{}
	}
	r.removeDue(now)
	r.due[now.Add(delay).Unix()]++
}

func (r *returnedMessages) count(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeDue(now)
	sum := 0
	for _, number := range r.due {
		sum += number
	}
	return sum
}

func (r *returnedMessages) removeDue(now time.Time) {
	for second := range r.due {
		if second < now.Unix() {
			delete(r.due, second)
		}
	}
}
