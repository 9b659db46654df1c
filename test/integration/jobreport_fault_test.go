package integration

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func abandonOneMore(t *testing.T, ns string) {
	t.Helper()
	job := newSuspendedJob(ns)
	job.GenerateName, job.Spec.ManagedBy = "another-", new(absentController)
	if err := cluster.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// removeFinalizers removes an object's finalizers.
func removeFinalizers(t *testing.T, object client.Object) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := cluster.Patch(context.Background(), object, patch); err != nil {
		t.Error(err)
	}
}
