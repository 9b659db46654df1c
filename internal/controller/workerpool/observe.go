package workerpool

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// asking is how long all workers of a pool have to answer in one look.
const asking = 1500 * time.Millisecond

// sight is what was seen of a pool.
type sight struct {
	in pool.Observation
	// workloads and pods are the objects that were read, by name: what is changed is changed
	// over exactly these versions.
	workloads map[string]client.Object
	pods      map[string]*corev1.Pod
	queues    *queues
	policies  policies
}

// observe gathers all that the core must know.
func (r *Reconciler) observe(ctx context.Context, wp *v1alpha1.WorkerPool) (*sight, error) {
	seen := &sight{
		in: pool.Observation{
			Pool:     wp.DeepCopy(),
			Operator: pool.OperatorSettings{Image: r.options.Image, PodMonitors: r.podMonitors.Load()},
			Memory:   r.known.memory(wp),
		},
		workloads: map[string]client.Object{}, pods: map[string]*corev1.Pod{},
	}
	if err := r.observePolicies(ctx, seen); err != nil {
		return nil, err
	}
	if err := r.observeRevisions(ctx, seen); err != nil {
		return nil, err
	}
	if err := r.observeWorkers(ctx, seen); err != nil {
		return nil, err
	}
	// After the workers: what they had begun by then the broker counts, too.
	if err := r.observeQueues(ctx, seen); err != nil {
		return nil, err
	}
	seen.in.Now = r.clock.Now()
	return seen, nil
}

// observeRevisions reads the pool's Deployments and StatefulSets.
func (r *Reconciler) observeRevisions(ctx context.Context, seen *sight) error {
	wp := seen.in.Pool
	mine := []client.ListOption{client.InNamespace(wp.Namespace), client.MatchingLabels(pool.WorkerSelector(wp.Name))}
	var deployments appsv1.DeploymentList
	if err := r.client.List(ctx, &deployments, mine...); err != nil {
		return fmt.Errorf("listing Deployments: %w", err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if pool.IsControllerOf(wp, d) {
			revision := seen.addRevision(d, d.Spec.Replicas)
			revision.CreationFailure = stuck(d)
			seen.in.Revisions = append(seen.in.Revisions, revision)
		}
	}
	var sets appsv1.StatefulSetList
	if err := r.client.List(ctx, &sets, mine...); err != nil {
		return fmt.Errorf("listing StatefulSets: %w", err)
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		if pool.IsControllerOf(wp, s) {
			revision := seen.addRevision(s, s.Spec.Replicas)
			revision.Ordered = true
			seen.in.Revisions = append(seen.in.Revisions, revision)
		}
	}
	return nil
}

func (s *sight) addRevision(object client.Object, replicas *int32) pool.Revision {
	s.workloads[object.GetName()] = object
	revision := pool.Revision{
		Name:    object.GetName(),
		Hash:    hashOf(object),
		Version: object.GetLabels()[pool.LabelAppVersion],
		Image:   object.GetAnnotations()[pool.AnnotationImage],
		Created: object.GetCreationTimestamp().Time,
		History: pool.ParseHistory(object.GetAnnotations()[pool.AnnotationRolloutHistory]),
	}
	if replicas != nil {
		revision.Replicas = *replicas
	}
	return revision
}

// hashOf a revision is in the selector of its Pods, which nobody can change, unlike the
// label on the revision itself.
func hashOf(workload client.Object) string {
	selector := &metav1.LabelSelector{}
	switch w := workload.(type) {
	case *appsv1.Deployment:
		selector = w.Spec.Selector
	case *appsv1.StatefulSet:
		selector = w.Spec.Selector
	}
	return selector.MatchLabels[pool.LabelRevision]
}

// stuck is why a Deployment's Pods cannot be made.
func stuck(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// observeWorkers reads the pool's Pods, and asks each what it is doing.
func (r *Reconciler) observeWorkers(ctx context.Context, seen *sight) error {
	wp := seen.in.Pool
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(wp.Namespace), client.MatchingLabels(pool.WorkerSelector(wp.Name)))
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	seen.in.Workers = seen.workers(pods.Items)
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	var group errgroup.Group
	for i := range seen.in.Workers {
		w := &seen.in.Workers[i]
		group.Go(func() error {
			w.Stats = r.stats(ctx, seen.pods[w.Name])
			return nil
		})
	}
	return group.Wait()
}

// stats are a worker's own word; nil if it gives none, which is no error: it may not be
// there yet, or no more.
func (r *Reconciler) stats(ctx context.Context, worker *corev1.Pod) *pool.WorkerStats {
	if worker.Status.PodIP == "" {
		return nil
	}
	s, err := r.workers.Stats(ctx, r.options.Address(worker))
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("A worker does not say what it is doing", "pod", worker.Name, "error", err.Error())
		return nil
	}
	return &pool.WorkerStats{
		Draining: s.Draining(), Drained: s.Drained(), InFlight: s.InFlight, Prefetched: s.Held, Succeeded: s.Succeeded, Failed: s.Failed,
	}
}

// workers are the Pods that one of the revisions has made.
func (s *sight) workers(pods []corev1.Pod) []pool.Worker {
	var workers []pool.Worker
	for i := range pods {
		if pod := &pods[i]; s.made(pod) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			s.pods[pod.Name] = pod
			workers = append(workers, workerOf(pod))
		}
	}
	return workers
}

// made tells whether a revision has made the Pod, itself or by a ReplicaSet, whose name
// begins with its own.
func (s *sight) made(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return false
	}
	name := controller.Name
	if controller.Kind == "ReplicaSet" {
		name = name[:max(0, strings.LastIndexByte(name, '-'))]
	}
	workload := s.workloads[name]
	return workload != nil && hashOf(workload) == pod.Labels[pool.LabelRevision]
}

// workerOf a Pod, as the core sees it.
func workerOf(pod *corev1.Pod) pool.Worker {
	w := pool.Worker{
		Name: pod.Name, Revision: pod.Labels[pool.LabelRevision], Created: pod.CreationTimestamp.Time,
		Ordinal:        ordinal(pod),
		Assigned:       pod.Spec.NodeName != "",
		Pending:        pod.Status.Phase == corev1.PodPending,
		Terminating:    !pod.DeletionTimestamp.IsZero(),
		DrainingSince:  markOf(pod, pool.AnnotationDraining),
		IdleSince:      markOf(pod, pool.AnnotationIdle),
		RemovableSince: markOf(pod, pool.AnnotationRemovable),
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			w.ReadySince = c.LastTransitionTime.Time
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			c := &statuses[i]
			w.Running = w.Running || c.State.Running != nil && speaks(c.Name)
			if c.State.Waiting != nil && w.WaitingReason == "" {
				w.WaitingReason = c.State.Waiting.Reason
			}
		}
	}
	return w
}

// speaks tells whether a container may have messages.
func speaks(container string) bool {
	return container == v1alpha1.WorkerContainer || container == pool.SidecarContainer
}

// ordinal of a StatefulSet's Pod.
func ordinal(pod *corev1.Pod) int32 {
	number, err := strconv.ParseInt(pod.Labels[appsv1.PodIndexLabel], 10, 32)
	if err != nil {
		return 0 // a Deployment's
	}
	return int32(number)
}

// markOf is a time that was written on a Pod; none if somebody broke it.
func markOf(pod *corev1.Pod, annotation string) time.Time {
	at, err := time.Parse(time.RFC3339, pod.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
