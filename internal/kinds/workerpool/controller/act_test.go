package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kube"
)

func TestAConflictOnOnePodDoesNotPreventTheDrainStatesOfOthers(t *testing.T) {
	const changed, number = "worker-0", 3 * maxConcurrentPatches
	var objects []client.Object
	observed := &Observed{pods: map[string]*corev1.Pod{}}
	var states []workerpool.DrainState
	for i := range number {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("worker-%d", i), ResourceVersion: "1"}}
		objects, observed.pods[pod.Name] = append(objects, pod), pod.DeepCopy()
		states = append(states, workerpool.DrainState{Worker: pod.Name, DrainingSince: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)})
	}
	r := &Reconciler{Clients: kube.Clients{Client: fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if object.GetName() == changed {
				return apierrors.NewConflict(corev1.Resource("pods"), changed, errors.New("the object has been modified"))
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond): // the duration of a request
				return c.Patch(ctx, object, patch, options...)
			}
		},
	}).Build()}}

	if err := r.writeDrainStates(t.Context(), observed, states); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	for _, object := range objects {
		pod := &corev1.Pod{}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(object), pod); err != nil {
			t.Fatal(err)
		}
		if written := pod.Annotations[workerpool.AnnotationDraining] != ""; written != (pod.Name != changed) {
			t.Errorf("drain state of %s is written: %t", pod.Name, written)
		}
	}
}

func TestAFinishedWorkerGetsAShortTimeToEnd(t *testing.T) {
	for title, row := range map[string]struct {
		answer  error
		isError bool
	}{
		"accepted":                    {nil, false},
		"gone":                        {apierrors.NewNotFound(corev1.Resource("pods"), "worker-0"), false},
		"forbidden":                   {apierrors.NewForbidden(corev1.Resource("pods"), "worker-0", errors.New("no")), false},
		"the API server is not there": {errors.New("connection refused"), true},
	} {
		t.Run(title, func(t *testing.T) {
			var got client.DeleteOptions
			r := &Reconciler{Clients: kube.Clients{Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
					got.ApplyOptions(options)
					return row.answer
				},
			}).Build()}}
			observed := &Observed{pods: map[string]*corev1.Pod{"worker-0": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker-0", UID: "u"}}}}
			if err := r.endWorkers(t.Context(), observed, []string{"worker-0"}); (err != nil) != row.isError {
				t.Errorf("error %v, want one: %t", err, row.isError)
			}
			if got.GracePeriodSeconds == nil || *got.GracePeriodSeconds != 5 || got.Preconditions == nil || *got.Preconditions.UID != "u" {
				t.Errorf("options %+v", got)
			}
		})
	}
}

// While a Deployment still wants a deleted Pod, its ReplicaSet replaces the Pod at once.
func TestPodsOfADeploymentEndOnceItsReplicasAreReduced(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{workerpool.LabelRevision: "r"}}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "pool-r", ResourceVersion: "1"}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: selector}}
	statefulSet := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: selector}}
	conflict := apierrors.NewConflict(appsv1.Resource("deployments"), "pool-r", errors.New("changed"))
	for title, row := range map[string]struct {
		workload client.Object
		answer   error
		want     []string
	}{
		"a Deployment":                   {deployment, nil, []string{"patch", "delete"}},
		"a Deployment that has changed":  {deployment, conflict, []string{"patch"}},
		"a StatefulSet":                  {statefulSet, nil, []string{"delete", "patch"}},
		"a StatefulSet that has changed": {statefulSet, conflict, []string{"delete", "patch"}},
	} {
		t.Run(title, func(t *testing.T) {
			var calls []string
			api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					calls = append(calls, "delete")
					return nil
				},
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					calls = append(calls, "patch")
					return row.answer
				},
			}).Build()
			r := &Reconciler{Clients: kube.Clients{Client: api, Live: api}}
			wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"}}
			observed := &Observed{
				workloads: map[string]client.Object{"pool-r": row.workload},
				pods:      map[string]*corev1.Pod{"worker-0": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker-0", UID: "u"}}},
			}
			size := &workerpool.RevisionSize{Name: "pool-r", Finished: []string{"worker-0"}, Removable: []string{"worker-0"}}
			if refusal, err := r.resizeRevision(t.Context(), wp, observed, size); refusal != nil || (err != nil) != (row.answer != nil) {
				t.Errorf("refusal %v, error %v", refusal, err)
			}
			if !slices.Equal(calls, row.want) {
				t.Errorf("calls %q, want %q", calls, row.want)
			}
		})
	}
}
