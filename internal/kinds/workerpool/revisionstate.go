package workerpool

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// revisionState is a revision with its workers and the changes planned for it.
type revisionState struct {
	Revision
	exists bool
	// workload to create or restore, if this is the updated revision.
	workload decision.Object
	// workers that are not terminating, and the number of those that are.
	workers     []*workerState
	terminating int32
	// servingTarget is the number of workers that should take messages.
	servingTarget int32
	// newReplicas and newHistory to write.
	newReplicas int32
	newHistory  History
}

// workerState is a worker with the drain state planned for it.
type workerState struct {
	*Worker
	targetDraining, targetIdle, targetRemovable time.Time
}

// newRevisionStates returns the revisions with their workers, newest first, and the revision that
// the spec asks for, which is added if it does not exist.
func newRevisionStates(observation *Observation, builder *workloadBuilder, now time.Time) (all []*revisionState, updated *revisionState) {
	byHash := map[string]*revisionState{}
	for _, r := range observation.Revisions {
		byHash[r.Hash] = &revisionState{Revision: r, exists: true, newReplicas: r.Replicas}
	}
	workload, hash := builder.buildWorkload()
	if updated = byHash[hash]; updated == nil {
		updated = &revisionState{Revision: Revision{
			Name: workload.GetName(), Hash: hash, Created: now,
			Version: builder.pool.Spec.Version, Image: workload.GetAnnotations()[AnnotationImage],
			Ordered: builder.pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
		}}
		byHash[hash] = updated
	}
	keepSidecarImage(workload, updated.SidecarImage)
	if updated.TerminationGrace > 0 && builder.hashedGrace() == policy.MinTerminationGrace {
		setTerminationGrace(PodSpecOf(workload), updated.TerminationGrace) // the hash does not contain it
	}
	updated.PreStopSecret = updated.preStopSecret(observation.Operator.Admin)
	protectAdminAPI(PodSpecOf(workload), sharedObjectName(builder.pool.Name), updated.PreStopSecret)
	// The other revisions get no history: a later rollout to one starts from the beginning.
	updated.workload, updated.newHistory = workload, updated.History
	for i := range observation.Workers {
		// A worker whose revision was deleted is ignored: the garbage collector deletes it.
		if r := byHash[observation.Workers[i].Revision]; r != nil {
			r.addWorker(&observation.Workers[i])
		}
	}
	return slices.SortedFunc(maps.Values(byHash), func(a, b *revisionState) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	}), updated
}

// keepSidecarImage sets the image of the sidecar to that of the existing revision, if there is one.
func keepSidecarImage(workload decision.Object, existing string) {
	if existing == "" {
		return
	}
	if sidecar := sidecarOf(PodSpecOf(workload)); sidecar != nil {
		sidecar.Image = existing
	}
}

func (r *revisionState) addWorker(w *Worker) {
	if w.Terminating {
		r.terminating++
		return
	}
	r.workers = append(r.workers, &workerState{w, w.DrainingSince, w.IdleSince, w.RemovableSince})
}

// sumOf adds up a count of each revision.
func sumOf(revisions []*revisionState, count func(*revisionState) int32) int32 {
	total := int32(0)
	for _, r := range revisions {
		total += count(r)
	}
	return total
}

func (w *workerState) isServing() bool {
	return w.targetDraining.IsZero() && w.targetRemovable.IsZero()
}

func (w *workerState) isUndrainable() bool {
	return !w.targetDraining.IsZero() && w.targetRemovable.IsZero()
}

func (w *workerState) undrain() { w.targetDraining, w.targetIdle = time.Time{}, time.Time{} }

// isEmpty reports whether the revision has no workers, and none are planned.
func (r *revisionState) isEmpty() bool {
	return r.Replicas == 0 && r.newReplicas == 0 && len(r.workers) == 0 && r.terminating == 0
}

// hasWorkers reports whether workers exist, including terminating ones and those not created yet.
func (r *revisionState) hasWorkers() bool { return r.totalWorkers()+r.terminating > 0 }

// totalWorkers counts the workers that are not terminating, and those not created yet.
func (r *revisionState) totalWorkers() int32 { return max(r.Replicas, r.liveWorkers()) }

// liveWorkers counts the workers that are not terminating.
func (r *revisionState) liveWorkers() int32 { return int32(len(r.workers)) } //nolint:gosec // far fewer than 2^31

// uncreatedWorkers counts the replicas whose Pods do not exist yet.
func (r *revisionState) uncreatedWorkers() int32 { return r.totalWorkers() - r.liveWorkers() }

func (r *revisionState) countWorkers(matches func(*workerState) bool) int32 {
	count := int32(0)
	for _, w := range r.workers {
		if matches(w) {
			count++
		}
	}
	return count
}

// servingWorkers counts the workers that take messages, or will once they are ready.
func (r *revisionState) servingWorkers() int32 {
	return r.countWorkers((*workerState).isServing) + r.uncreatedWorkers()
}

// availableWorkers counts the workers that take messages now.
func (r *revisionState) availableWorkers() int32 {
	return r.countWorkers(func(w *workerState) bool { return w.isServing() && w.IsReady() })
}

// drainingWorkers counts the workers that drain or terminate.
func (r *revisionState) drainingWorkers() int32 {
	return r.terminating + r.countWorkers(func(w *workerState) bool { return !w.isServing() })
}

// undrainableWorkers counts the draining workers that can take messages again.
func (r *revisionState) undrainableWorkers() int32 {
	return r.countWorkers((*workerState).isUndrainable)
}

// lowestRemovableOrdinal returns the lowest ordinal of a removable worker of a StatefulSet. All
// workers from that ordinal on must stop before the StatefulSet can grow.
func (r *revisionState) lowestRemovableOrdinal() int32 {
	lowest := int32(math.MaxInt32)
	for _, w := range r.workers {
		if r.Ordered && !w.targetRemovable.IsZero() {
			lowest = min(lowest, w.Ordinal)
		}
	}
	return lowest
}

// startFailureReasons maps the waiting reasons of containers that cannot start without a
// change to the reasons of conditions.
var startFailureReasons = map[string]string{
	"ErrImagePull":               v1alpha1.ReasonImagePull,
	"ImagePullBackOff":           v1alpha1.ReasonImagePull,
	"InvalidImageName":           v1alpha1.ReasonImagePull,
	"ErrImageNeverPull":          v1alpha1.ReasonImagePull,
	"CreateContainerConfigError": v1alpha1.ReasonCrashLoop,
	"CreateContainerError":       v1alpha1.ReasonCrashLoop,
	"CrashLoopBackOff":           v1alpha1.ReasonCrashLoop,
	"RunContainerError":          v1alpha1.ReasonCrashLoop,
}

// startFailure returns the reason why workers of the revision do not start; nil if they do.
func (r *revisionState) startFailure() *decision.Problem {
	for _, w := range r.workers {
		if reason := startFailureReasons[w.WaitingReason]; reason != "" {
			return &decision.Problem{Reason: reason, Message: "revision " + r.Name + ": worker " + w.Name + " does not start: " + w.WaitingReason}
		}
	}
	if r.CreationFailure == "" {
		return nil
	}
	reason := v1alpha1.ReasonMinimumUnavailable
	if decision.ClassOfForbidden(r.CreationFailure) == decision.QuotaExceeded {
		reason = v1alpha1.ReasonQuotaExceeded
	}
	return &decision.Problem{Reason: reason, Message: "revision " + r.Name + ": its Pods cannot be created: " + r.CreationFailure}
}
