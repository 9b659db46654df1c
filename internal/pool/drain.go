package pool

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// settle brings a revision nearer to the workers it is wanted to have, and has those
// it is not drained before they go.
func (d *decision) settle(r *revision) {
	d.straighten(r)
	d.observe(r)
	r.replicas = r.Replicas
	gone := d.removable(r)
	switch surplus := r.serving() - r.wanted; {
	case gone > 0:
		// Growth waits until they are gone: it would keep them.
		r.replicas = min(r.Replicas, r.live()-gone)
	case surplus < 0:
		surplus += r.callBack(-surplus)
		if r.floor() == math.MaxInt32 {
			r.replicas = max(r.Replicas, r.total()-surplus)
		}
		d.dismiss(r)
	case surplus > 0 && r.Stuck != "" && r.coming() > 0:
		r.replicas = r.Replicas - min(r.coming(), surplus)
	default:
		// Those still to come count for nothing: if they are too many, they go once they are
		// there, before they have begun anything.
		d.choose(r, surplus-r.coming())
		d.dismiss(r)
	}
	d.tell(r)
}

// observe notes which of the draining workers say that they have nothing in flight. One
// that has said so and does not answer now takes no more messages either: it is not to
// begin a lease anew for each answer that is late.
func (d *decision) observe(r *revision) {
	for _, w := range r.workers {
		switch {
		case w.draining.IsZero():
			w.idle = time.Time{}
		case w.Stats == nil:
		case !w.Stats.Drained || w.Stats.InFlight > 0:
			w.idle = time.Time{}
		case w.idle.IsZero():
			w.idle = d.now
		}
	}
}

// choose has so many workers drain.
func (d *decision) choose(r *revision, number int32) {
	if number <= 0 {
		return
	}
	victims := slices.DeleteFunc(slices.Clone(r.workers), func(w *worker) bool { return !w.serves() })
	slices.SortStableFunc(victims, inOrder(r.Ordered, leastLoss))
	for _, w := range victims[:min(int(number), len(victims))] {
		w.draining = d.now
	}
}

// callBack has up to so many draining workers go on, the last asked first. It returns how
// many do.
func (r *revision) callBack(number int32) int32 {
	floor := r.floor()
	back := slices.DeleteFunc(slices.Clone(r.workers), func(w *worker) bool {
		return w.draining.IsZero() || !w.leaving.IsZero() || w.Ordinal > floor
	})
	slices.SortStableFunc(back, func(a, b *worker) int {
		if r.Ordered {
			return cmp.Compare(a.Ordinal, b.Ordinal)
		}
		return cmp.Or(b.draining.Compare(a.draining), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	called := int32(0)
	for _, w := range back[:min(int(number), len(back))] {
		w.callBack()
		called++
	}
	return called
}

func (w *worker) callBack() { w.draining, w.idle = time.Time{}, time.Time{} }

// dismiss has those leave that have finished. Removing them is for a later pass, which has
// seen that this is on their Pods: who removes Pods goes by that.
func (d *decision) dismiss(r *revision) {
	for _, w := range r.workers {
		if !w.draining.IsZero() && w.leaving.IsZero() && d.finished(w) {
			w.leaving = d.now
		}
	}
}

// removable is how many workers can be removed now: all of them leave, have nothing in
// flight, and are the first that the workload's controller would take.
func (d *decision) removable(r *revision) int32 {
	order, precedes := slices.Clone(r.workers), inOrder(r.Ordered, removal)
	slices.SortStableFunc(order, precedes)
	number, seen := int32(0), int32(0)
	for i, w := range order {
		if w.Leaving.IsZero() || !d.finished(w) {
			break
		}
		seen++
		// Of two that are equal in all that is known, either may be taken.
		if i+1 == len(order) || precedes(w, order[i+1]) < 0 {
			number = seen
		}
	}
	return number
}

// inOrder is an order of workers, or else that of their numbers, the highest first.
func inOrder(ordered bool, order func(a, b *worker) int) func(a, b *worker) int {
	if ordered {
		return func(a, b *worker) int { return cmp.Compare(b.Ordinal, a.Ordinal) }
	}
	return order
}

// removal is the order in which a ReplicaSet removes Pods, as far as it matters here: those
// without a node, then pending, then unready ones; then by the deletion cost, which is
// lowest where a worker leaves.
func removal(a, b *worker) int {
	return cmp.Or(
		first(!a.Assigned, !b.Assigned),
		first(a.Pending, b.Pending),
		first(!a.Ready(), !b.Ready()),
		first(!a.Leaving.IsZero(), !b.Leaving.IsZero()),
	)
}

// leastLoss is the order in which workers are chosen: those that a ReplicaSet would take
// first anyway, then idle ones, then the youngest.
func leastLoss(a, b *worker) int {
	return cmp.Or(
		first(!a.Assigned, !b.Assigned),
		first(a.Pending, b.Pending),
		first(!a.Running, !b.Running),
		first(!a.Ready(), !b.Ready()),
		first(a.Stats != nil && a.Stats.InFlight == 0, b.Stats != nil && b.Stats.InFlight == 0),
		b.Created.Compare(a.Created),
		cmp.Compare(a.Name, b.Name),
	)
}

// first puts what is before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// finished tells whether nothing is lost when a draining worker goes.
func (d *decision) finished(w *worker) bool {
	f := d.in.Figures
	switch {
	case !w.Running && w.Stats == nil, d.abandoned():
		return true
	case d.drain.Mode == v1alpha1.DrainSignal:
		return f != nil // going is how it is asked
	case f == nil:
		return false
	case d.timedOut(w) && d.drain.OnTimeout == v1alpha1.DrainRequeue:
		return true
	case w.Stats == nil:
		// It does not say. The broker does, once it would have given to others what a
		// worker that is not there had.
		return f.InFlightKnown && d.explained(w) && d.now.Sub(w.draining) >= d.lease()
	case !w.Stats.Drained || w.Stats.InFlight > 0:
		return false
	default:
		return d.explained(w) || !w.idle.IsZero() && d.now.Sub(w.idle) >= d.lease()
	}
}

// explained tells whether the broker knows of no more in flight than the other workers
// say they have, those included that they have fetched in advance. It counts messages that wait for another try, too, so that what is not
// explained may be nobody's: a lease later, at the latest, it is not this worker's.
func (d *decision) explained(w *worker) bool {
	if !d.in.Figures.InFlightKnown {
		return true
	}
	others := int64(0)
	for i := range d.in.Workers {
		if other := &d.in.Workers[i]; other.Name != w.Name && other.Stats != nil {
			others += max(other.Stats.InFlight, 0) + max(other.Stats.Held, 0)
		}
	}
	return d.in.Figures.InFlight <= others
}

func (d *decision) lease() time.Duration {
	if d.in.Figures == nil || d.in.Figures.Lease <= 0 {
		return defaultLease
	}
	return d.in.Figures.Lease
}

func (d *decision) timedOut(w *worker) bool {
	return !w.draining.IsZero() && d.now.Sub(w.draining) >= d.drain.Timeout.Duration.Duration
}

// tell plans to mark what has changed, and to ask whoever does not do what is marked.
func (d *decision) tell(r *revision) {
	for _, w := range r.workers {
		if !w.draining.Equal(w.Draining) || !w.idle.Equal(w.Idle) || !w.leaving.Equal(w.Leaving) {
			d.plan.Marks = append(d.plan.Marks, Mark{w.Name, w.draining, w.idle, w.leaving})
		}
		if !w.Running && w.Stats == nil || d.drain.Mode == v1alpha1.DrainSignal {
			continue
		}
		drains := w.Stats != nil && w.Stats.Draining
		switch {
		case !w.draining.IsZero() && !drains:
			d.plan.Ask = append(d.plan.Ask, Request{Worker: w.Name, Drain: true})
		case w.draining.IsZero() && drains:
			d.plan.Ask = append(d.plan.Ask, Request{Worker: w.Name})
		}
	}
}
