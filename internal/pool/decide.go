package pool

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// Decide plans the next moves of a WorkerPool.
func Decide(in Input) Plan {
	d := newDecision(in)
	d.plan.Finalizer = true
	switch d.problem = d.obstacle(); {
	case !in.Pool.DeletionTimestamp.IsZero():
		d.remove()
	case d.problem == nil:
		d.proceed()
	}
	d.summarise()
	d.plan.Status, d.plan.Memory = d.status, d.memory
	d.plan.Deferrable = deferrable(&in.Pool.Status, &d.status) && !d.plan.acts()
	d.plan.Events = d.events()
	d.plan.RequeueAfter = d.interval()
	return d.plan
}

// decision is one call of Decide on its way.
type decision struct {
	in      Input
	now     time.Time
	drain   v1alpha1.Drain
	rollout v1alpha1.Rollout
	status  v1alpha1.WorkerPoolStatus
	memory  scaling.Memory
	plan    Plan
	problem *Problem

	// revisions that there are, and the one of the spec, the newest first.
	revisions []*revision
	updated   *revision
	// desired number of workers, and what was decided to come to it.
	desired  int32
	decided  *scaling.Decision
	limit    int32
	complete bool
}

// revision is one with its workers.
type revision struct {
	Revision
	// there: it has been made.
	there bool
	// workload it is to be made as, if it is the one of the spec.
	workload Object
	// workers that have not been deleted, and how many have and still finish.
	workers     []*worker
	terminating int32
	// wanted workers that take messages, and replicas to ask for.
	wanted, replicas int32
	past             Past
}

// worker is one with where it is to stand.
type worker struct {
	*Worker
	draining, idle, leaving time.Time
}

func (w *worker) serves() bool { return w.draining.IsZero() && w.leaving.IsZero() }

func newDecision(in Input) *decision {
	d := &decision{
		in:      in,
		now:     in.Now.Truncate(time.Second), // as it is stored
		drain:   settleDrain(in.Pool, in.Effective),
		rollout: rolloutOf(in.Pool),
		status:  *in.Pool.Status.DeepCopy(),
		memory:  in.Memory,
	}
	for _, r := range in.Revisions {
		d.revisions = append(d.revisions, &revision{Revision: r, there: true, replicas: r.Replicas, past: r.Past})
	}
	for i := range in.Workers {
		d.assign(&in.Workers[i])
	}
	d.update()
	slices.SortStableFunc(d.revisions, func(a, b *revision) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	})
	d.desired = in.Pool.Status.Desired
	if in.Pool.Status.ObservedGeneration == 0 { // no status was ever stored, or it is lost
		d.desired = d.serving()
	}
	return d
}

// assign gives a worker to its revision.
func (d *decision) assign(w *Worker) {
	i := slices.IndexFunc(d.revisions, func(r *revision) bool { return r.Hash == w.Revision })
	if i < 0 { // its revision was deleted by somebody, and it goes, too
		return
	}
	if w.Terminating {
		d.revisions[i].terminating++
		return
	}
	d.revisions[i].workers = append(d.revisions[i].workers, &worker{w, w.Draining, w.Idle, w.Leaving})
}

// update finds the revision that the spec asks for, or begins it.
func (d *decision) update() {
	template := d.template()
	hash := d.hash(&template)
	finish(&template, hash)
	workload := d.workload(&template, hash)
	i := slices.IndexFunc(d.revisions, func(r *revision) bool { return r.Hash == hash })
	if i < 0 {
		d.revisions = append(d.revisions, &revision{Revision: Revision{
			Name: workload.GetName(), Hash: hash, Created: d.now,
			Version: d.in.Pool.Spec.Version, Image: d.image(),
			Ordered: d.in.Pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
		}})
		i = len(d.revisions) - 1
	}
	d.updated = d.revisions[i]
	d.updated.workload = workload
	for _, r := range d.revisions {
		if r != d.updated {
			r.past = Past{} // whoever comes back to it begins anew
		}
	}
}

// obstacle is what keeps the pool from doing what its spec says.
func (d *decision) obstacle() *Problem {
	if problem := d.invalid(); problem != nil {
		return problem
	}
	return d.in.Problem
}

// proceed takes a pool that is not being deleted as far as it goes.
func (d *decision) proceed() {
	d.scale()
	d.rollOut()
	for _, r := range d.revisions {
		d.settle(r)
	}
	d.plan.Apply = d.shared()
	if d.updated != nil && d.updated.there {
		d.plan.Keep = d.updated.workload
	}
	d.resize()
	d.prune()
}

// resize plans what replicas and past the revisions are to have. All that shrink come
// first: what they give up is what others may have.
func (d *decision) resize() {
	for _, r := range d.revisions {
		if r.there && r.replicas == r.Replicas && r.past == r.Past {
			continue
		}
		if !r.there && r != d.updated {
			continue
		}
		size := Size{Name: r.Name, Replicas: r.replicas, Past: r.past, Ordered: r.Ordered}
		if !r.there {
			size.New = r.workload
		}
		for _, w := range r.workers {
			if w.Leaving.IsZero() || !d.finished(w) {
				continue
			}
			size.Finished = append(size.Finished, w.Name)
			if !w.Running {
				size.Unstarted = append(size.Unstarted, w.Name)
			}
		}
		d.plan.Resize = append(d.plan.Resize, size)
	}
	slices.SortStableFunc(d.plan.Resize, func(a, b Size) int {
		return cmp.Compare(d.growth(a), d.growth(b))
	})
}

func (d *decision) growth(s Size) int32 {
	for _, r := range d.revisions {
		if r.Name == s.Name && r.there {
			return s.Replicas - r.Replicas
		}
	}
	return s.Replicas
}

// prune removes old revisions that have no workers, but for those to go back to.
func (d *decision) prune() {
	keep := int32(defaultRevisionHistory)
	if d.rollout.RevisionHistory != nil {
		keep = *d.rollout.RevisionHistory
	}
	for _, r := range d.revisions { // the newest first
		if r == d.updated || r.Name == d.status.CurrentRevision || !r.there || !r.empty() {
			continue
		}
		keep--
		if keep < 0 {
			d.plan.Remove = append(d.plan.Remove, r.Name)
		}
	}
}

// empty tells whether nothing of the revision is there or asked for.
func (r *revision) empty() bool {
	return r.Replicas == 0 && r.replicas == 0 && len(r.workers) == 0 && r.terminating == 0
}

// total is how many workers there are or will be, those included that have not gone yet.
func (r *revision) total() int32 { return max(r.Replicas, r.live()) }

// live workers have not been deleted.
func (r *revision) live() int32 { return r.count(func(*worker) bool { return true }) }

// coming workers are asked for and not made yet.
func (r *revision) coming() int32 { return r.total() - r.live() }

// count of workers that the test is true of.
func (r *revision) count(is func(*worker) bool) int32 {
	number := int32(0)
	for _, w := range r.workers {
		if is(w) {
			number++
		}
	}
	return number
}

// serving workers take messages, or will.
func (r *revision) serving() int32 { return r.count((*worker).serves) + r.coming() }

// available workers take messages now.
func (r *revision) available() int32 {
	return r.count(func(w *worker) bool { return w.serves() && w.Ready() })
}

func (d *decision) sum(of func(*revision) int32) int32 {
	total := int32(0)
	for _, r := range d.revisions {
		total += of(r)
	}
	return total
}

func (d *decision) serving() int32 { return d.sum((*revision).serving) }

func (d *decision) available() int32 { return d.sum((*revision).available) }

// acts reports whether the plan changes anything but the status.
func (p *Plan) acts() bool {
	return len(p.Marks)+len(p.Ask)+len(p.Resize)+len(p.Remove) > 0 || !p.Finalizer
}

const (
	// settled is how often a pool is looked at that nothing is due for.
	settled = 15 * time.Second
	// asked is how often a source is asked whether there is something to do again: of its
	// first message nobody tells.
	asked = 5 * time.Second
)

// interval until the next look: what changes at the broker and in workers is not told.
// A pool that sleeps is woken by its queues.
func (d *decision) interval() time.Duration {
	busy := d.sum(func(r *revision) int32 { return r.total() + r.terminating }) > 0
	deleting := !d.in.Pool.DeletionTimestamp.IsZero()
	switch {
	case deleting && !d.plan.Finalizer:
		return 0
	case busy || deleting || d.desired > 0:
		if d.problem != nil || d.in.Pool.Spec.Autoscaling == nil && !d.moving() && !deleting {
			return settled
		}
		return scaling.Interval
	case d.problem != nil, d.in.Figures == nil && d.in.Pool.Spec.Autoscaling != nil, d.sleepsBadly():
		return settled
	case d.in.Pool.Spec.Source != nil && d.in.Pool.Spec.Autoscaling != nil:
		return asked
	default:
		return 0
	}
}

// moving tells whether workers come, go, or are to be proven.
func (d *decision) moving() bool {
	return !d.complete || d.plan.acts() || d.status.Draining > 0 || d.available() < d.desired || d.serving() != d.desired
}

// sleepsBadly tells whether something is due of which no message tells.
func (d *decision) sleepsBadly() bool {
	f := d.in.Figures
	return f != nil && d.in.Pool.Spec.Autoscaling != nil && f.Backlog+f.InFlight+f.Delayed > 0
}

// notStarting are the reasons for which a container does not start before somebody has
// changed something, by what they mean.
var notStarting = map[string]string{
	"ErrImagePull":               v1alpha1.ReasonImagePull,
	"ImagePullBackOff":           v1alpha1.ReasonImagePull,
	"InvalidImageName":           v1alpha1.ReasonImagePull,
	"ErrImageNeverPull":          v1alpha1.ReasonImagePull,
	"CreateContainerConfigError": v1alpha1.ReasonCrashLoop,
	"CreateContainerError":       v1alpha1.ReasonCrashLoop,
	"CrashLoopBackOff":           v1alpha1.ReasonCrashLoop,
	"RunContainerError":          v1alpha1.ReasonCrashLoop,
}

// failing is why a revision's workers do not start; empty if they do.
func (r *revision) failing() (reason, message string) {
	for _, w := range r.workers {
		if reason := notStarting[w.Waiting]; reason != "" {
			return reason, "worker " + w.Name + " waits: " + w.Waiting
		}
	}
	if r.Stuck != "" {
		return v1alpha1.ReasonMinimumUnavailable, r.Stuck
	}
	return "", ""
}

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)
