package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// staleCache lists the objects of another client.
type staleCache struct {
	cache.Cache

	stored client.Client
}

func (c staleCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.stored.List(ctx, list, options...)
}

func TestJobsAndPodsOfADeletedSessionAreDeletedIfTheyBelongToIt(t *testing.T) {
	object := func(o client.Object, name, ownerKind string, owner types.UID) client.Object {
		o.SetNamespace("ns")
		o.SetName(name)
		o.SetUID(types.UID(name))
		o.SetLabels(map[string]string{agenticsession.LabelSessionUID: "1"})
		if owner != "" {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "x/v1", Kind: ownerKind, Name: "x", UID: owner, Controller: new(true)}})
		}
		return o
	}
	ofSession := func(name string) client.Object { return object(&batchv1.Job{}, name, "AgenticSession", "1") }
	ofJob := func(name string, job types.UID) client.Object { return object(&corev1.Pod{}, name, "Job", job) }
	for title, row := range map[string]struct {
		cached []client.Object
		// changed are objects that are not stored as they are cached.
		changed []client.Object
		left    []string
		retries bool
	}{
		"a Job and its Pod":                           {cached: []client.Object{ofSession("job"), ofJob("pod", "job")}},
		"a Pod whose Job is deleted already":          {cached: []client.Object{ofJob("pod", "job")}},
		"objects of others with the label":            {cached: []client.Object{object(&batchv1.Job{}, "job", "AgenticSession", "2"), ofJob("pod", "job")}, left: []string{"job", "pod"}},
		"a Pod without an owner":                      {cached: []client.Object{object(&corev1.Pod{}, "pod", "", "")}, left: []string{"pod"}},
		"a Job that lost its owner since it was read": {cached: []client.Object{ofSession("job"), ofJob("pod", "job")}, changed: []client.Object{object(&batchv1.Job{}, "job", "", "")}, left: []string{"job", "pod"}, retries: true},
		"a session without objects":                   {},
	} {
		t.Run(title, func(t *testing.T) {
			builder := func() *fake.ClientBuilder {
				b := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
				byUID := func(o client.Object) []string { return []string{o.GetLabels()[agenticsession.LabelSessionUID]} }
				return b.WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).WithObjects(row.cached...)
			}
			cached, stored := builder().Build(), builder().Build()
			for _, changed := range row.changed {
				if err := stored.Update(t.Context(), changed); err != nil {
					t.Fatal(err)
				}
			}
			r := &Reconciler{Clients: kube.Clients{Client: stored}, options: Options{Children: staleCache{stored: cached}}}
			for range 2 { // twice: the second time finds what the cache still shows
				result, err := r.remove(t.Context(), deletedSession{"ns", "1"})
				if err != nil || (result.RequeueAfter > 0) != row.retries {
					t.Errorf("result %+v, error %v", result, err)
				}
			}
			var left []string
			jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
			if err := errors.Join(stored.List(t.Context(), jobs), stored.List(t.Context(), pods)); err != nil {
				t.Fatal(err)
			}
			for i := range jobs.Items {
				left = append(left, jobs.Items[i].Name)
			}
			for i := range pods.Items {
				left = append(left, pods.Items[i].Name)
			}
			if !slices.Equal(left, row.left) {
				t.Errorf("%v are left, want %v", left, row.left)
			}
		})
	}
}
