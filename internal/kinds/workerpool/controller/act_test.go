package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
