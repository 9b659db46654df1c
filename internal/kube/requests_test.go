package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRequestsForListSelectsByListOptions(t *testing.T) {
	pod := func(namespace, name string) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	reader := fake.NewClientBuilder().WithObjects(pod("ns", "a"), pod("ns", "b"), pod("other", "c")).Build()
	want := []reconcile.Request{
		{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}}, {NamespacedName: types.NamespacedName{Namespace: "ns", Name: "b"}},
	}
	if diff := cmp.Diff(want, RequestsForList(t.Context(), reader, &corev1.PodList{}, client.InNamespace("ns"))); diff != "" {
		t.Error(diff)
	}
}

func TestRequestsForListReturnsNothingWhenTheCacheFails(t *testing.T) {
	reader := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("the cache is not started")
		},
	}).Build()
	if got := RequestsForList(t.Context(), reader, &corev1.PodList{}); got != nil {
		t.Errorf("%v", got)
	}
}
