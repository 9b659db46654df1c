package controller

import (
	"context"
	"errors"
	"testing"
	"time"

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

func TestARefusedProtectionIsNoErrorAndIsRepeatedAfterAMinute(t *testing.T) {
	pods := corev1.Resource("pods")
	for title, test := range map[string]struct {
		answer   error
		isError  bool
		requests int // of two, two seconds apart
	}{
		"denied by a policy": {
			apierrors.NewForbidden(pods, "worker-0", errors.New("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no")), false, 1,
		},
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
