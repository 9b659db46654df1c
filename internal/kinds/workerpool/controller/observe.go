package controller

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

// Observed is the input of the decision, with the observed objects.
type Observed struct {
	workerpool.Observation
	// workloads and pods by name, which are changed only over the versions that were read.
	workloads map[string]client.Object
	pods      map[string]*corev1.Pod
	queues    *observedQueues
	// lastDrainRequests are the drain requests of the last decision, sent before workers are observed.
	lastDrainRequests []workerpool.DrainRequest
	// adminKeys sign requests to workers; nil without a key.
	adminKeys *adminauth.Keys
	// namespacePolicies are all Policies of the namespace.
	namespacePolicies policy.Set
}

// Observe implements kube.Kind.
func (r *Reconciler) Observe(ctx context.Context, wp *v1alpha1.WorkerPool) (*Observed, error) {
	if !wp.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(wp, v1alpha1.WorkerPoolFinalizer) {
		return nil, nil // the garbage collector deletes its objects
	}
	remembered, _ := r.memory.Get(wp)
	observed := &Observed{
		Observation: workerpool.Observation{
			Pool: wp.DeepCopy(),
			Operator: workerpool.OperatorSettings{
				Image: r.options.Image, Namespace: r.options.OperatorNamespace,
				OmitObjectNames: metric.ObjectNamesOmitted(),
			},
			Memory:  scaling.RestoreMemory(&wp.Status),
			Rollout: remembered.rollout,
			Work:    workerpool.RestoreWork(&wp.Status),
			Refusal: remembered.refusal,

			BusyTimes: remembered.busyTimes,
		},
		workloads: map[string]client.Object{}, pods: map[string]*corev1.Pod{},
		lastDrainRequests: remembered.drainRequests,
	}
	if remembered.scaling != nil {
		observed.Memory, observed.Work = *remembered.scaling, remembered.work
	}
	for _, read := range []func(context.Context, *Observed) error{
		r.observeAdminAccess,
		r.observeNetworkPolicies,
		r.observePolicies,
		r.observeRevisions,
		r.observePods,
		r.observeQueues,
		r.observePeers,
	} {
		if err := read(ctx, observed); err != nil {
			return nil, err
		}
	}
	return observed, nil
}

func (o *Observed) setProblem(reason, message string) {
	if o.Problem == nil {
		o.Problem = &decision.Problem{Reason: reason, Message: message}
	}
}

func (r *Reconciler) observePolicies(ctx context.Context, observed *Observed) (err error) {
	wp := observed.Pool
	observed.namespacePolicies, err = r.policies.Get(ctx, wp.Namespace)
	observed.Policies = observed.namespacePolicies.Select(wp.Labels)
	return err
}

func (r *Reconciler) observeRevisions(ctx context.Context, observed *Observed) error {
	wp := observed.Pool
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}} {
		if err := r.Client.List(ctx, list, client.InNamespace(wp.Namespace), client.MatchingFields(workerpool.WorkerSelector(wp.Name))); err != nil {
			return fmt.Errorf("listing the revisions: %w", err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if workload, ok := item.(client.Object); ok && metav1.IsControlledBy(workload, wp) {
				observed.workloads[workload.GetName()] = workload
				observed.Revisions = append(observed.Revisions, newRevision(workload))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func newRevision(workload client.Object) workerpool.Revision {
	pod := &workerpool.TemplateOf(workload).Spec
	revision := workerpool.Revision{
		Name:             workload.GetName(),
		Hash:             revisionHash(workload),
		Version:          workload.GetLabels()[workerpool.LabelAppVersion],
		Image:            workload.GetAnnotations()[workerpool.AnnotationImage],
		Created:          workload.GetCreationTimestamp().Time,
		Replicas:         ptr.Deref(*replicasField(workload), 0),
		SidecarImage:     workerpool.SidecarImage(pod),
		PreStopSecret:    workerpool.PreStopSecretOf(pod),
		TerminationGrace: workerpool.TerminationGraceOf(pod),
		History:          workerpool.ParseHistory(workload.GetAnnotations()[workerpool.AnnotationRolloutHistory]),
	}
	switch w := workload.(type) {
	case *appsv1.Deployment:
		for _, c := range w.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				revision.CreationFailure = c.Message
			}
		}
	case *appsv1.StatefulSet:
		revision.Ordered = true
	}
	return revision
}

// revisionHash returns the hash of a revision from the selector of its Pods, which is immutable, unlike the revision's
// labels.
func revisionHash(workload client.Object) string {
	selector := &metav1.LabelSelector{}
	switch w := workload.(type) {
	case *appsv1.Deployment:
		selector = w.Spec.Selector
	case *appsv1.StatefulSet:
		selector = w.Spec.Selector
	}
	return selector.MatchLabels[workerpool.LabelRevision]
}

func (r *Reconciler) observePods(ctx context.Context, observed *Observed) error {
	wp := observed.Pool
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(wp.Namespace), client.MatchingFields(workerpool.WorkerSelector(wp.Name)))
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	observed.Workers = observed.addPods(pods.Items)
	return nil
}

// addPods adds the Pods that a revision controls, directly or through a ReplicaSet, and returns their workers.
func (o *Observed) addPods(pods []corev1.Pod) []workerpool.Worker {
	var workers []workerpool.Worker
	for i := range pods {
		pod := &pods[i]
		controller := metav1.GetControllerOf(pod)
		if controller == nil || decision.HasPodEnded(pod) {
			continue
		}
		name := controller.Name
		if controller.Kind == "ReplicaSet" { // its name begins with the name of its Deployment
			name = name[:max(0, strings.LastIndexByte(name, '-'))]
		}
		if workload := o.workloads[name]; workload != nil && revisionHash(workload) == pod.Labels[workerpool.LabelRevision] {
			o.pods[pod.Name] = pod
			workers = append(workers, workerOfPod(pod))
		}
	}
	return workers
}

func workerOfPod(pod *corev1.Pod) workerpool.Worker {
	ordinal, _ := strconv.ParseInt(pod.Labels[appsv1.PodIndexLabel], 10, 32) // 0 for a Deployment's Pod
	w := workerpool.Worker{
		Name: pod.Name, Revision: pod.Labels[workerpool.LabelRevision], Created: pod.CreationTimestamp.Time,
		Ordinal:        int32(ordinal),
		Assigned:       pod.Spec.NodeName != "",
		Pending:        pod.Status.Phase == corev1.PodPending,
		Terminating:    !pod.DeletionTimestamp.IsZero(),
		DrainingSince:  annotatedTime(pod, workerpool.AnnotationDraining),
		IdleSince:      annotatedTime(pod, workerpool.AnnotationIdle),
		RemovableSince: annotatedTime(pod, workerpool.AnnotationRemovable),
		Protection:     workerpool.Protection{Written: annotatedTime(pod, workerpool.AnnotationProtection)},
	}
	_, safeToEvict := pod.Annotations[workerpool.AnnotationSafeToEvict]
	_, doNotDisrupt := pod.Annotations[workerpool.AnnotationDoNotDisrupt]
	w.Protection.Active = safeToEvict || doNotDisrupt
	w.Protection.Foreign = w.Protection.Active && w.Protection.Written.IsZero()
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			w.ReadySince = c.LastTransitionTime.Time
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			c := &statuses[i]
			mayHaveMessages := c.Name == v1alpha1.WorkerContainer || c.Name == workerpool.SidecarContainer
			w.Running = w.Running || c.State.Running != nil && mayHaveMessages
			w.StartFailure = cmp.Or(w.StartFailure, workerpool.StartFailure(c))
		}
	}
	return w
}

func annotatedTime(pod *corev1.Pod, annotation string) time.Time {
	at, err := time.Parse(time.RFC3339, pod.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// observeAdminAccess reads the operator's key, and derives the keys for the workers of the pool.
func (r *Reconciler) observeAdminAccess(ctx context.Context, observed *Observed) error {
	keys, err := r.keys.Get(ctx)
	if keys == nil || err != nil {
		return err
	}
	observed.adminKeys = keys
	observed.Operator.Admin = &workerpool.AdminAccess{PublicKey: keys.PublicKey(), PreStopKey: keys.PreStopKey(string(observed.Pool.UID))}
	return nil
}

// observeNetworkPolicies reads the NetworkPolicies that may select the pool's workers.
func (r *Reconciler) observeNetworkPolicies(ctx context.Context, observed *Observed) error {
	if r.options.OperatorNamespace == "" {
		return nil
	}
	var policies networkingv1.NetworkPolicyList
	// Not copied: a namespace may have NetworkPolicies of thousands of sessions, and they are only read.
	if err := r.Client.List(ctx, &policies, client.InNamespace(observed.Pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NetworkPolicies: %w", err)
	}
	observed.NetworkPolicies = policies.Items
	return nil
}
