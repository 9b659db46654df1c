package pool

import (
	"errors"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// errPassEnded ends a pass of the simulated operator: a crash, a conflict.
var errPassEnded = errors.New("pass ended")

// pass plays one pass of the operator, as the reconciler makes it: observe, decide, record,
// act, with a chance of a crash between any two requests.
func (w *world) pass() Plan {
	in := w.observe()
	plan := Decide(in)
	w.checkPlan(&in, &plan)
	if w.carryOut(&in, &plan) != nil {
		return Plan{Finalizer: false} // it did not get on
	}
	return plan
}

func (w *world) observe() Input {
	in := Input{
		Pool: w.pool.DeepCopy(), Now: w.now,
		Memory: scaling.Recall(w.pool.Status.Scaling),
		Config: Config{File: "x"},
	}
	in.Revisions = slices.Clone(w.seen.revisions)
	in.Workers = slices.Clone(w.seen.workers)
	for i := range in.Workers {
		in.Workers[i].Stats = w.stats(in.Workers[i].Name)
	}
	if w.down {
		in.Unread = "the broker is down"
		return in
	}
	in.Figures = &Figures{InFlightKnown: true, Lease: simLease}
	in.Figures.Backlog = w.backlog
	in.Figures.InFlight = int64(len(w.lost)) + w.retrying
	for _, p := range w.pods {
		in.Figures.InFlight += int64(len(p.jobs))
	}
	return in
}

// stats are what a worker says of itself.
func (w *world) stats(name string) *Stats {
	p := w.find(name)
	if p == nil || p.deaf || !p.Running {
		return nil
	}
	s := &Stats{Draining: p.drains, InFlight: int64(len(p.jobs)), Succeeded: new(p.succeeded), Failed: new(p.failed)}
	if p.liar {
		s.InFlight = 0
	}
	s.Drained = p.drains && s.InFlight == 0
	return s
}

func (w *world) find(name string) *pod {
	for _, p := range w.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (w *world) checkPlan(in *Input, plan *Plan) {
	before := w.pool.Status
	if in.Figures == nil && w.pool.Spec.Autoscaling != nil && plan.Status.Desired < min(before.Desired, w.pool.Spec.Autoscaling.MaxReplicas) {
		w.violate("scaled down to %d without figures", plan.Status.Desired)
	}
	if a := w.pool.Spec.Autoscaling; a != nil && (plan.Status.Desired > a.MaxReplicas || in.Figures != nil && plan.Status.Desired < 0) {
		w.violate("%d workers are out of bounds", plan.Status.Desired)
	}
	total, was := int32(0), int32(0)
	for _, r := range in.Revisions {
		size, live := r.Replicas, int32(0)
		for _, worker := range in.Workers {
			if worker.Revision == r.Hash && !worker.Terminating {
				live++
			}
		}
		was += max(size, live)
		for _, s := range plan.Resize {
			if s.Name == r.Name {
				size = s.Replicas
			}
		}
		total += max(size, live)
	}
	for _, s := range plan.Resize {
		if s.New != nil {
			total += s.Replicas
		}
	}
	// One that leaves is replaced: it may take until its broker answers.
	surge := share(w.pool.Spec.Rollout.MaxSurge, defaultMaxSurge, plan.Status.Desired, true)
	for i := range in.Workers {
		if !in.Workers[i].Leaving.IsZero() {
			surge++
		}
	}
	if total > max(was, plan.Status.Desired+surge) {
		w.violate("%d workers where %d are wanted, with a surge of %d", total, plan.Status.Desired, surge)
	}
}

// crash may end the process between two requests.
func (w *world) crash() bool {
	if w.calm || !w.chance(3) {
		return false
	}
	w.note("operator crashes")
	w.crashes++
	return true
}

func (w *world) carryOut(in *Input, plan *Plan) error {
	if w.crash() {
		return errPassEnded
	}
	w.pool = w.pool.DeepCopy()
	w.pool.Status = plan.Status
	for _, m := range plan.Marks {
		if w.crash() || !w.mark(in, m) {
			return errPassEnded
		}
	}
	for _, ask := range plan.Ask {
		if w.crash() {
			return errPassEnded
		}
		if p := w.find(ask.Worker); p != nil && !p.deaf && !p.Terminating {
			w.note("ask %s: drain %t", p.Name, ask.Drain)
			p.drains = ask.Drain
		}
	}
	for _, size := range plan.Resize {
		if w.crash() || !w.resize(size) {
			return errPassEnded
		}
	}
	for _, name := range plan.Remove {
		if d := w.deployments[name]; d.Replicas > 0 || len(w.live(d.Hash)) > 0 {
			w.violate("%s is removed with its workers", name)
		}
		delete(w.deployments, name)
	}
	return nil
}

// mark writes on a Pod, over the version that was read.
func (w *world) mark(in *Input, m Mark) bool {
	p := w.find(m.Worker)
	i := slices.IndexFunc(in.Workers, func(worker Worker) bool { return worker.Name == m.Worker })
	seen := in.Workers[i]
	seen.Stats = nil
	if p == nil || p.Worker != seen {
		w.note("conflict: %s", m.Worker)
		return false
	}
	w.note("mark %s: draining %s, leaving %s", m.Worker, clock(m.Draining), clock(m.Leaving))
	p.Draining, p.Idle, p.Leaving = m.Draining, m.Idle, m.Leaving
	p.version++
	return true
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "no"
	}
	return t.Format("04:05")
}

// resize asks a revision for other replicas, after a live look at its workers if they are
// to be fewer.
func (w *world) resize(s Size) bool {
	d := w.deployments[s.Name]
	if d == nil {
		if s.New == nil {
			return false // somebody removed it
		}
		d = &deployment{Revision{Name: s.Name, Hash: s.New.GetLabels()[LabelRevision], Created: w.now.Truncate(time.Second), Ordered: s.Ordered}}
		w.deployments[s.Name] = d
	}
	live, fewer := w.live(d.Hash), s.Replicas < d.Replicas
	if fewer {
		var workers []Worker
		for _, p := range live {
			workers = append(workers, p.Worker)
		}
		if s.Strikes(workers) {
			w.note("stale: %s", s.Name)
			return false
		}
	}
	w.note("%s: %d replicas, %s", s.Name, s.Replicas, s.Past)
	d.Replicas, d.Past = s.Replicas, s.Past
	if fewer {
		w.checkVictims(d, live)
	}
	return true
}

// checkVictims looks at the Pods that would be removed at once. One that answers nobody
// cannot be made to take nothing: only what the broker said is known of it. And one that
// lies is believed after a lease: what it does not renew by then is no more its own.
func (w *world) checkVictims(d *deployment, live []*pod) {
	for left := slices.Clone(live); int32(len(left)) > d.Replicas; {
		victim := w.next(d, left)
		left = slices.DeleteFunc(left, func(p *pod) bool { return p == victim })
		timedOut := w.pool.Spec.Drain.OnTimeout == v1alpha1.DrainRequeue && w.now.Sub(victim.Draining) >= w.pool.Spec.Drain.Timeout.Duration.Duration
		believed := victim.liar && w.now.Sub(victim.Idle) >= simLease
		if len(victim.jobs) > 0 && !timedOut && !victim.deaf && !believed {
			w.violate("%s is to go, with %d messages in flight (liar: %t)", victim.Name, len(victim.jobs), victim.liar)
		}
		if w.down && victim.Running {
			w.violate("%s is to go while the broker is down", victim.Name)
		}
	}
}
