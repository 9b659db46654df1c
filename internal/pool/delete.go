package pool

import (
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// drainForDeletion drains all workers of a pool that is being deleted. When there are none, what it
// is made of goes with it.
func (d *evaluation) drainForDeletion() {
	d.problem = nil // whatever it was, nobody will put it right
	d.desired, d.rolloutComplete = 0, true
	d.memory, d.status.Scaling = scaling.Memory{}, nil
	left := int32(0)
	for _, r := range d.revisions {
		r.servingTarget = 0
		d.planRevision(r)
		left += r.totalWorkers() + r.terminating
	}
	d.planResizes()
	d.decision.KeepFinalizer = left > 0
}

// isDrainAbandoned tells whether somebody gave up on draining a pool that is being deleted.
func (d *evaluation) isDrainAbandoned() bool {
	return !d.observation.Pool.DeletionTimestamp.IsZero() && d.observation.Pool.Annotations[AnnotationAbandon] == "true"
}
