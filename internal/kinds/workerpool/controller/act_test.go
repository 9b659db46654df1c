package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	"github.com/yardmaster/yardmaster/test/require"
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

	err := r.writeDrainStates(t.Context(), observed, states)
	require.True(t, apierrors.IsConflict(err), "error %v, want a conflict", err)
	for _, object := range objects {
		pod := &corev1.Pod{}
		require.NoError(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(object), pod))
		written := pod.Annotations[workerpool.AnnotationDraining] != ""
		require.True(t, written == (pod.Name != changed), "drain state of %s is written: %t", pod.Name, written)
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
			err := r.endWorkers(t.Context(), observed, []string{"worker-0"})
			require.True(t, (err != nil) == row.isError, "error %v, want one: %t", err, row.isError)
			isShort := got.GracePeriodSeconds != nil && *got.GracePeriodSeconds == 5
			require.True(t, isShort && got.Preconditions != nil && *got.Preconditions.UID == "u", "options %+v", got)
		})
	}
}

// The workload controller would delete Pods first, with their whole grace period; and while a Deployment still wants a deleted Pod, its ReplicaSet
// replaces the Pod.
func TestPodsEndRightBeforeTheirReplicasAreReducedAndOnlyIfTheyCanBe(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{workerpool.LabelRevision: "r"}}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "pool-r", UID: "u"}
	workloads := map[string]client.Object{
		"Deployment":  &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: selector}},
		"StatefulSet": &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: selector}},
	}
	conflict := apierrors.NewConflict(appsv1.Resource("deployments"), "pool-r", errors.New("changed"))
	unavailable := errors.New("connection refused")
	invalid := apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), "pool-r", nil)
	for title, row := range map[string]struct {
		answers   []error // to the patches
		scaled    bool    // by somebody else, meanwhile
		want      string
		isRefused bool
		err       error
	}{
		"accepted":                            {want: "try delete patch"},
		"changed before":                      {answers: []error{conflict}, want: "try", err: conflict},
		"refused":                             {answers: []error{invalid}, want: "try", isRefused: true},
		"the API server is away":              {answers: []error{unavailable}, want: "try", err: unavailable},
		"changed twice meanwhile":             {answers: []error{nil, conflict, conflict}, want: "try delete patch get patch get patch"},
		"scaled meanwhile":                    {answers: []error{nil, conflict}, scaled: true, want: "try delete patch get", err: kube.ErrStale},
		"the API server is away meanwhile":    {answers: []error{nil, unavailable}, want: "try delete patch", err: unavailable},
		"a policy refuses since the deletion": {answers: []error{nil, invalid}, want: "try delete patch", isRefused: true},
	} {
		for kind, workload := range workloads {
			t.Run(kind+", "+title, func(t *testing.T) {
				var calls []string
				patches := 0
				stored := workload.DeepCopyObject().(client.Object)
				if row.scaled {
					*replicasField(stored) = new(int32(3))
				}
				api := fake.NewClientBuilder().WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
					Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
						calls = append(calls, "delete")
						return nil
					},
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						calls = append(calls, "get")
						return c.Get(ctx, key, object, options...)
					},
					Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, options ...client.PatchOption) error {
						call := "patch"
						if len((&client.PatchOptions{}).ApplyOptions(options).DryRun) > 0 {
							call = "try"
						}
						calls, patches = append(calls, call), patches+1
						if patches > len(row.answers) {
							return nil
						}
						return row.answers[patches-1]
					},
				}).Build()
				r := &Reconciler{Clients: kube.Clients{Client: api, Live: api}}
				wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"}}
				observed := &Observed{
					workloads: map[string]client.Object{"pool-r": workload},
					pods:      map[string]*corev1.Pod{"worker-0": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker-0", UID: "u"}}},
				}
				size := &workerpool.RevisionSize{Name: "pool-r", Finished: []string{"worker-0"}, Removable: []string{"worker-0"}}
				refusal, err := r.resizeRevision(t.Context(), wp, observed, size)
				require.True(t, (refusal != nil) == row.isRefused && errors.Is(err, row.err), "refusal %v, error %v", refusal, err)
				require.Equal(t, row.want, strings.Join(calls, " "))
			})
		}
	}
}

func TestARefusedProtectionIsNoErrorAndIsRepeatedAfterAMinute(t *testing.T) {
	pods := corev1.Resource("pods")
	for title, test := range map[string]struct {
		answer   error
		isError  bool
		requests int // of two, two seconds apart
	}{
		"denied by a policy":          {apierrors.NewForbidden(pods, "worker-0", errors.New("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no")), false, 1},
		"the Pod was deleted":         {apierrors.NewNotFound(pods, "worker-0"), false, 2},
		"the Pod changed":             {apierrors.NewConflict(pods, "worker-0", errors.New("changed")), true, 2},
		"the API server is not there": {errors.New("connection refused"), true, 2},
	} {
		t.Run(title, func(t *testing.T) {
			requests := 0
			r := &Reconciler{memory: kube.NewStore[poolMemory](), Clients: kube.Clients{Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					requests++
					return test.answer
				},
			}).Build()}}
			wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail", UID: "u"}}
			observed := &Observed{pods: map[string]*corev1.Pod{"worker-0": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker-0", ResourceVersion: "1"}}}}
			start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			write := func(after time.Duration) {
				observed.Now = start.Add(after)
				err := r.writeProtections(t.Context(), wp, observed, []workerpool.ProtectionChange{{Worker: "worker-0", Active: true, Time: observed.Now}})
				require.True(t, (err != nil) == test.isError, "error %v, want one: %t", err, test.isError)
			}
			write(0)
			write(2 * time.Second)
			require.True(t, requests == test.requests, "%d requests, want %d", requests, test.requests)
			write(2*time.Second + protectionRefusalInterval)
			require.True(t, requests == test.requests+1, "%d requests after the interval, want %d", requests, test.requests+1)
		})
	}
}
