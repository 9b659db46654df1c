// Package kstatustest checks in tests how kstatus reads an object's status. Flux, Argo CD and
// other tools use kstatus to determine whether an applied object is ready.
package kstatustest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/test/require"
)

// AssertKstatus fails the test unless kstatus computes the wanted status for the object.
func AssertKstatus(t testing.TB, object runtime.Object, want status.Status) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	require.NoError(t, err)
	if result.Status != want {
		t.Errorf("kstatus is %s (%s), want %s", result.Status, result.Message, want)
	}
}
