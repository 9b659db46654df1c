package worker

import (
	"math"
	"sync"
	"time"
)

// recentTime is the time constant with which recent attempts decay.
const recentTime = 2 * time.Minute

// RecentAttempts are the attempts that ended in the last minutes. Each counts less the longer ago it ended: by
// 1/e after two minutes.
type RecentAttempts struct {
	// Count of the attempts.
	Count float64 `json:"count"`
	// Seconds that their handlers took together.
	Seconds float64 `json:"seconds"`
	// Returned is the number of those after which the message returned to its queue: failed ones that are
	// retried, and snoozed ones.
	Returned float64 `json:"returned"`
}

// decayedBy returns the attempts after some time.
func (r RecentAttempts) decayedBy(elapsed time.Duration) RecentAttempts {
	kept := math.Exp(-max(elapsed, 0).Seconds() / recentTime.Seconds())
	return RecentAttempts{Count: r.Count * kept, Seconds: r.Seconds * kept, Returned: r.Returned * kept}
}

// attemptRecorder records recent attempts. It is safe for concurrent use.
type attemptRecorder struct {
	mu       sync.Mutex
	attempts RecentAttempts
	lastTime time.Time
}

// record adds an attempt that ended now.
func (a *attemptRecorder) record(now time.Time, took time.Duration, returns bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts, a.lastTime = a.attempts.decayedBy(now.Sub(a.lastTime)), now
	a.attempts.Count++
	a.attempts.Seconds += max(took, 0).Seconds()
	if returns {
		a.attempts.Returned++
	}
}

// recent returns the attempts as of now.
func (a *attemptRecorder) recent(now time.Time) RecentAttempts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attempts.decayedBy(now.Sub(a.lastTime))
}
