package workerpool

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// fleet is the observed state of a pool, and the rules that apply to it. Stats include the reports of workers.
type fleet struct {
	Observation
	now         time.Time
	isDeleting  bool
	effective   *v1alpha1.WorkerPoolEffective
	drain       drainRules
	rolloutSpec v1alpha1.Rollout
	builder     *workloadBuilder
	// problem that prevents the pool from following its spec; nil if none exists, or if the pool is being deleted.
	problem *decision.Problem
	// work is what workers finish.
	work WorkMemory
	// revisions, newest first. updated is the revision that the spec describes, which may not exist yet.
	revisions []*revisionState
	updated   *revisionState
}

type revisionState struct {
	Revision
	exists bool
	// workload to create or restore, if this is the updated revision.
	workload decision.Object
	// workers that are not terminating, and the number of terminating workers.
	workers     []*workerState
	terminating int32
	// failure is why its workers do no work; nil if they do, or may start to.
	failure *decision.Problem
	// newReplicas and newHistory to write; the current values until workers are planned.
	newReplicas int32
	newHistory  History
}

// workerState is a worker with its planned drain state; the current state until workers are planned.
type workerState struct {
	*Worker
	targetDraining, targetIdle, targetRemovable time.Time
}

func newFleet(observation Observation) *fleet {
	wp := observation.Pool
	observation.Stats = observation.Stats.addWorkers(observation.Workers, wp.Spec.Concurrency)
	effective := policy.EffectiveWorkerPool(wp, &observation.Policies)
	f := &fleet{
		Observation: observation,
		now:         observation.Now.Truncate(time.Second), // the precision of the stored times
		isDeleting:  !wp.DeletionTimestamp.IsZero(),
		effective:   effective,
		rolloutSpec: ptr.Deref(wp.Spec.Rollout, v1alpha1.Rollout{}),
		builder:     newWorkloadBuilder(wp, effective, observation.Config, observation.Operator),
	}
	f.drain = drainRules{
		Drain: *effective.Drain, now: f.now, stats: observation.Stats, workers: observation.Workers,
		endsSoon:    f.builder.defaultGrace,
		isAbandoned: f.isDeleting && wp.Annotations[AnnotationAbandon] == "true",
	}
	f.revisions, f.updated = newRevisionStates(&observation, f.builder, f.now)
	f.work = observation.Work.observe(f)
	for _, r := range f.revisions {
		r.failure = findRevisionFailure(f, r)
	}
	if !f.isDeleting {
		f.problem = findProblem(&observation, f.drain.Mode)
	}
	return f
}

// newRevisionStates returns the revisions with their workers, newest first, including the updated revision, even if it
// does not exist yet.
func newRevisionStates(observation *Observation, builder *workloadBuilder, now time.Time) (all []*revisionState, updated *revisionState) {
	byHash := map[string]*revisionState{}
	for _, r := range observation.Revisions {
		byHash[r.Hash] = &revisionState{Revision: r, exists: true, newReplicas: r.Replicas}
	}
	template := builder.buildTemplate()
	hash := HashJSON(struct {
		Template *corev1.PodTemplateSpec
		Workload v1alpha1.Workload
	}{&template, builder.pool.Spec.Workload})
	if updated = byHash[hash]; updated == nil {
		updated = &revisionState{Revision: Revision{
			Name: childObjectName(builder.pool.Name, hash), Hash: hash, Created: now,
			Version: builder.pool.Spec.Version, Ordered: builder.pool.Spec.Workload == v1alpha1.WorkloadStatefulSet,
		}}
		byHash[hash] = updated
	}
	builder.completeTemplate(&template, updated)
	updated.workload = builder.buildWorkload(hash, template)
	if !updated.exists {
		updated.Image = updated.workload.GetAnnotations()[AnnotationImage]
	}
	for i := range observation.Workers {
		w := &observation.Workers[i]
		// The garbage collector deletes a worker whose revision was deleted.
		switch r := byHash[w.Revision]; {
		case r == nil:
		case w.Terminating:
			r.terminating++
		default:
			r.workers = append(r.workers, &workerState{w, w.DrainingSince, w.IdleSince, w.RemovableSince})
		}
	}
	return slices.SortedFunc(maps.Values(byHash), func(a, b *revisionState) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	}), updated
}

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

// isUndrainable reports whether the worker drains and can be undrained.
func (w *workerState) isUndrainable() bool {
	return !w.targetDraining.IsZero() && w.targetRemovable.IsZero()
}

// IsReady reports whether the worker's readiness probe succeeds, and the worker does not report that it is detached
// from a queue.
func (w *Worker) IsReady() bool {
	return !w.ReadySince.IsZero() && (w.Stats == nil || w.Stats.Attached == nil || *w.Stats.Attached)
}

// hasWorkers reports whether workers exist, including workers that terminate or are not created yet.
func (r *revisionState) hasWorkers() bool { return r.totalWorkers()+r.terminating > 0 }

// totalWorkers counts the workers that are not terminating, including workers that are not created yet.
func (r *revisionState) totalWorkers() int32 { return max(r.Replicas, r.liveWorkers()) }

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

// servingWorkers counts the workers that take messages now or once they are ready.
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

// lowestRemovableOrdinal returns the lowest ordinal of a removable worker of a StatefulSet, which can grow only after
// all workers from this ordinal on have stopped.
func (r *revisionState) lowestRemovableOrdinal() int32 {
	lowest := int32(math.MaxInt32)
	for _, w := range r.workers {
		if r.Ordered && !w.targetRemovable.IsZero() {
			lowest = min(lowest, w.Ordinal)
		}
	}
	return lowest
}

// startFailureReasons maps the reasons of waiting containers that do not start by themselves to reasons of conditions.
var startFailureReasons = map[string]string{
	"ErrImagePull":               v1alpha1.ReasonImagePull,
	"ImagePullBackOff":           v1alpha1.ReasonImagePull,
	"InvalidImageName":           v1alpha1.ReasonImagePull,
	"ErrImageNeverPull":          v1alpha1.ReasonImagePull,
	"CreateContainerConfigError": v1alpha1.ReasonConfigError,
	"CreateContainerError":       v1alpha1.ReasonConfigError,
	"RunContainerError":          v1alpha1.ReasonConfigError,
	"CrashLoopBackOff":           v1alpha1.ReasonCrashLoop,
}

// maxStartFailureBytes limits what a condition quotes from the kubelet.
const maxStartFailureBytes = 512

// StartFailure returns why a container does not start by itself, in the kubelet's words; nil if it starts. After a crash, these
// words contain the growing time until the next attempt, so the exit replaces them.
func StartFailure(c *corev1.ContainerStatus) *decision.Problem {
	waiting, last := c.State.Waiting, c.LastTerminationState.Terminated
	if waiting == nil || startFailureReasons[waiting.Reason] == "" {
		return nil
	}
	reason, detail := startFailureReasons[waiting.Reason], waiting.Message
	if reason == v1alpha1.ReasonCrashLoop {
		detail = ""
		if last != nil {
			detail = decision.FormatReason(fmt.Sprintf("exit code %d", last.ExitCode), strings.TrimSpace(last.Message))
		}
	}
	message := "container " + c.Name + ": " + decision.FormatReason(waiting.Reason, detail)
	return &decision.Problem{Reason: reason, Message: decision.TruncateMessage(message, maxStartFailureBytes)}
}

// findProblem returns the first problem that prevents the pool from following its spec, or nil.
func findProblem(observation *Observation, mode v1alpha1.DrainMode) *decision.Problem {
	if errs := ValidateSpec(observation.Pool); len(errs) > 0 {
		return &decision.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: errs.ToAggregate().Error()}
	}
	if mode == v1alpha1.DrainSidecar && observation.Operator.Image == "" {
		return &decision.Problem{
			Reason:  v1alpha1.ReasonSpecInvalid,
			Message: "drain.mode is Sidecar, but the operator has no image for the sidecar: set the operator's flag --worker-image",
		}
	}
	pod := cmp.Or(observation.Pool.Spec.Template, &corev1.PodTemplateSpec{}).DeepCopy().Spec
	(&workloadBuilder{pool: observation.Pool}).workerContainer(&pod)
	if err := policy.CheckImages(&pod, &observation.Policies); err != nil {
		return &decision.Problem{Reason: v1alpha1.ReasonSpecInvalid, Message: err.Error()}
	}
	return observation.Problem
}

// ValidateSpec returns the errors of a spec that the CRD's validation rules cannot express.
func ValidateSpec(wp *v1alpha1.WorkerPool) field.ErrorList {
	spec := &wp.Spec
	if spec.Template == nil {
		return nil
	}
	path, errs := field.NewPath("spec", "template", "spec"), field.ErrorList{}
	validate := func(path *field.Path, containers []corev1.Container) {
		for i := range containers {
			c := &containers[i]
			for j, variable := range c.Env {
				if strings.HasPrefix(variable.Name, v1alpha1.WorkerEnvPrefix) {
					errs = append(errs, field.Invalid(path.Index(i).Child("env").Index(j).Child("name"), variable.Name,
						"names that begin with "+v1alpha1.WorkerEnvPrefix+" are reserved"))
				}
			}
		}
	}
	validate(path.Child("initContainers"), spec.Template.Spec.InitContainers)
	validate(path.Child("containers"), spec.Template.Spec.Containers)
	if i := indexOfContainer(spec.Template.Spec.Containers, SidecarContainer); i >= 0 {
		errs = append(errs, field.Invalid(path.Child("containers").Index(i).Child("name"), SidecarContainer, "is reserved"))
	}
	if i := indexOfContainer(spec.Template.Spec.InitContainers, SidecarContainer); i >= 0 {
		c := &spec.Template.Spec.InitContainers[i]
		if !equality.Semantic.DeepEqual(*c, corev1.Container{Name: c.Name, Env: c.Env, Resources: c.Resources}) {
			errs = append(errs, field.Forbidden(path.Child("initContainers").Index(i), "the sidecar yardmaster can only have env and resources: the operator sets its other fields"))
		}
	}
	for i, volume := range spec.Template.Spec.Volumes {
		if strings.HasPrefix(volume.Name, SidecarContainer+"-") {
			errs = append(errs, field.Invalid(path.Child("volumes").Index(i).Child("name"), volume.Name,
				"names that begin with yardmaster- are reserved"))
		}
	}
	if len(spec.Template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "a Pod cannot be created with ephemeral containers"))
	}
	return errs
}
