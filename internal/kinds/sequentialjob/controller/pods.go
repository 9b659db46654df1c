package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
)

// maxReportedBytes limits each message in a cached Pod.
const maxReportedBytes = 512

// NewCache returns a cache of the Pods of SequentialJobs, in these namespaces, or in all if the map is empty. It is separate from
// the manager's cache, which selects other Pods.
func NewCache(mgr ctrl.Manager, namespaces map[string]cache.Config) (cache.Cache, error) {
	ofSequentialJobs, err := labels.NewRequirement(v1alpha1.LabelSequentialJobUID, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	pods, err := informer.NewCache(mgr, "the Pods of SequentialJobs", cache.Options{
		DefaultNamespaces: namespaces,
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Label:     labels.NewSelector().Add(*ofSequentialJobs),
			Transform: trimPod,
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := pods.IndexField(context.Background(), &corev1.Pod{}, controllerIndex, controllerUID); err != nil {
		return nil, fmt.Errorf("indexing Pods by controller: %w", err)
	}
	return pods, mgr.Add(pods)
}

// trimPod keeps only the fields that show whether a Pod runs and how its step ended, to save memory.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp, OwnerReferences: pod.OwnerReferences,
		DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
	}}
	if step, hasStep := pod.Labels[v1alpha1.LabelStep]; hasStep {
		trimmed.Labels = map[string]string{v1alpha1.LabelStep: step}
	}
	if decision.MemoryOf(trimmed.OwnerReferences) > kube.LargeBytes {
		trimmed.OwnerReferences = nil
	}
	if sequentialjob.HasRun(pod) {
		trimmed.Annotations = sequentialjob.HasRunMark
	}
	trimmed.Status.Phase = pod.Status.Phase
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled || c.Type == corev1.PodReadyToStartContainers || c.Type == corev1.DisruptionTarget {
			c.Message = decision.TruncateMessage(c.Message, maxReportedBytes)
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
	}
	step := pod.Labels[v1alpha1.LabelStep]
	trimmed.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses, step)
	if decision.HasPodEnded(pod) { // most cached Pods
		trimmed.Status.Conditions = slices.DeleteFunc(trimmed.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.DisruptionTarget })
		trimmed.Status.ContainerStatuses = slices.DeleteFunc(trimmed.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name != step })
	} else {
		trimmed.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses, "")
	}
	hasOutput := func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && c.State.Terminated.Message != ""
	}
	if slices.ContainsFunc(trimmed.Status.ContainerStatuses, hasOutput) { // its maximum size depends on the number of containers
		trimmed.Spec.Containers = make([]corev1.Container, decision.CountContainers(&pod.Spec))
	}
	return trimmed, nil
}

// trimStatuses keeps why containers wait, since when they run, how often they were restarted, and how they ended.
func trimStatuses(statuses []corev1.ContainerStatus, step string) []corev1.ContainerStatus {
	var trimmed []corev1.ContainerStatus
	for i := range statuses {
		state := corev1.ContainerState{Running: statuses[i].State.Running}
		if waiting := statuses[i].State.Waiting; waiting != nil {
			state.Waiting = &corev1.ContainerStateWaiting{Reason: waiting.Reason, Message: decision.TruncateMessage(waiting.Message, maxReportedBytes)}
		}
		isOfStep, last := statuses[i].Name == step, corev1.ContainerState{}
		state.Terminated, last.Terminated = trimEnd(statuses[i].State.Terminated, isOfStep), trimEnd(statuses[i].LastTerminationState.Terminated, isOfStep)
		trimmed = append(trimmed, corev1.ContainerStatus{Name: statuses[i].Name, State: state, LastTerminationState: last, RestartCount: statuses[i].RestartCount})
	}
	return trimmed
}

// trimEnd keeps the message only of the step's container, and the whole message only of a success: it may be the output of the step.
func trimEnd(ended *corev1.ContainerStateTerminated, isOfStep bool) *corev1.ContainerStateTerminated {
	if ended == nil {
		return nil
	}
	message := ""
	switch {
	case isOfStep && ended.ExitCode == 0:
		message = ended.Message
	case isOfStep:
		message = decision.TruncateMessage(ended.Message, maxReportedBytes)
	}
	return &corev1.ContainerStateTerminated{ExitCode: ended.ExitCode, Reason: ended.Reason, Message: message, StartedAt: ended.StartedAt, FinishedAt: ended.FinishedAt}
}

// maxEvidence is the maximum number of Jobs whose Pods were requested to stop that are remembered.
const maxEvidence = 10_000

// evidenceStore remembers what Pods have shown that were requested to stop, because they are deleted when they have stopped. All other
// Pods are in the cache.
type evidenceStore struct {
	mu    sync.Mutex
	byJob *lru.Cache
}

func newEvidenceStore() *evidenceStore { return &evidenceStore{byJob: lru.New(maxEvidence)} }

func (s *evidenceStore) observe(versions ...*corev1.Pod) {
	owner := metav1.GetControllerOf(versions[0])
	if owner == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	evidence := s.of(owner.UID)
	for _, pod := range versions {
		evidence.Observe(pod)
	}
	s.byJob.Add(owner.UID, evidence)
}

// observeUnended remembers Pods of a live list, whose ends are still to be observed.
func (s *evidenceStore) observeUnended(pods []corev1.Pod) {
	for i := range pods {
		if !decision.HasPodEnded(&pods[i]) {
			s.observe(&pods[i])
		}
	}
}

// observeDeletion adds that a Pod was deleted.
func (s *evidenceStore) observeDeletion(pod *corev1.Pod, isLast bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	evidence := s.of(owner.UID)
	evidence.ObserveDeletion(pod, isLast)
	s.byJob.Add(owner.UID, evidence)
}

// of returns a copy.
func (s *evidenceStore) of(job types.UID) sequentialjob.Evidence {
	stored, found := s.byJob.Get(job)
	if !found {
		return sequentialjob.Evidence{}
	}
	evidence := stored.(sequentialjob.Evidence) //nolint:forcetypeassert // only evidence is stored
	return evidence.Clone()
}

func (r *Reconciler) podHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, before, after *corev1.Pod, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		owner := metav1.GetControllerOf(after)
		if owner == nil || decision.HasPodEnded(after) { // the end of the Job follows
			return
		}
		isRelevant, delay := sequentialjob.NewsOf(before, after)
		if !isRelevant {
			return
		}
		job := &batchv1.Job{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: after.Namespace, Name: owner.Name}, job); err != nil || job.UID != owner.UID {
			return // the next reconciliation observes the Pod
		}
		if delay > 0 && !r.progressWrites.HasRoom(after.Namespace) {
			delay = postponedFor
		}
		enqueueOwner(job, queue, delay)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if pod, isPod := e.Object.(*corev1.Pod); isPod {
				enqueue(ctx, nil, pod, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			before, isPod := e.ObjectOld.(*corev1.Pod)
			after, isPodToo := e.ObjectNew.(*corev1.Pod)
			if !isPod || !isPodToo {
				return
			}
			if sequentialjob.IsStopping(after) {
				r.evidence.observe(before, after)
			}
			enqueue(ctx, before, after, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if pod, isPod := e.Object.(*corev1.Pod); isPod {
				r.evidence.observeDeletion(pod, !e.DeleteStateUnknown)
			}
		},
	}
}
