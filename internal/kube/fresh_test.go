package kube

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestOnlyTheStoredVersionOfAnObjectIsFresh(t *testing.T) {
	stored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	c := fake.NewClientBuilder().WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*metav1.PartialObjectMetadata); !ok {
				t.Errorf("read a %T, want the metadata only", object)
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   func(error) bool
	}{
		"the stored version":               {func(*corev1.Pod) {}, func(err error) bool { return err == nil }},
		"an older version":                 {func(p *corev1.Pod) { p.ResourceVersion = "1" }, func(err error) bool { return errors.Is(err, ErrStale) }},
		"an earlier object with that name": {func(p *corev1.Pod) { p.UID = "0" }, func(err error) bool { return errors.Is(err, ErrStale) }},
		"a deleted object":                 {func(p *corev1.Pod) { p.Name = "b" }, apierrors.IsNotFound},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			pod := stored.DeepCopy()
			pod.ResourceVersion = "999"
			test.change(pod)
			err := AssertFresh(t.Context(), c, c, pod)
			if !test.want(err) {
				t.Errorf("got %v", err)
			}
			if err != nil && !isStaleError(err) {
				t.Errorf("%v is not retried as stale", err)
			}
		})
	}
}

func TestAFailedReadIsNotStale(t *testing.T) {
	unavailable := errors.New("connection refused")
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return unavailable
		},
	}).Build()
	err := AssertFresh(t.Context(), c, c, &corev1.Pod{})
	if !errors.Is(err, unavailable) || isStaleError(err) {
		t.Errorf("got %v", err)
	}
}
