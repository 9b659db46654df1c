package pool

import (
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// remove drains all workers of a pool that is being deleted. When there are none, what it
// is made of goes with it.
func (d *decision) remove() {
	d.problem = nil // whatever it was, nobody will put it right
	d.desired, d.complete = 0, true
	d.memory, d.status.Scaling = scaling.Memory{}, nil
	left := int32(0)
	for _, r := range d.revisions {
		r.wanted = 0
		d.settle(r)
		left += r.total() + r.terminating
	}
	d.resize()
	d.plan.Finalizer = left > 0
}

// abandoned tells whether somebody gave up on draining a pool that is being deleted.
func (d *decision) abandoned() bool {
	return !d.in.Pool.DeletionTimestamp.IsZero() && d.in.Pool.Annotations[AnnotationAbandon] == "true"
}
