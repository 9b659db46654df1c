package worker

import (
	"time"
)

// due are messages whose lease is to be renewed.
func (y *yard) due() []*held {
	y.mu.Lock()
	defer y.mu.Unlock()
	now := y.now()
	var due []*held
	for h := range y.leased {
		if !h.renewing && h.age(now) >= h.lane.queue.settings.Lease/3 {
			h.renewing = true
			due = append(due, h)
		}
	}
	return due
}

// renewed is told when the request was sent with which a lease was renewed, if it was.
func (y *yard) renewed(h *held, sent time.Time, ok bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	h.renewing = false
	if ok {
		h.leased.Store(&sent)
	}
}

// lost tells whether a message's lease is over, so that another worker may have it; and
// whether this worker is being drained.
func (y *yard) lost(h *held, now time.Time) (lost, draining bool) {
	return h.age(now) >= h.lane.queue.settings.Lease, y.draining.Load()
}

// age of a message's lease.
func (h *held) age(now time.Time) time.Duration {
	if renewed := h.leased.Load(); renewed != nil {
		return now.Sub(*renewed)
	}
	return now.Sub(h.since)
}
