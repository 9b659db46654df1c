package controller

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestPolicyIsReconciledWhenTheReplicasOfAPoolChange(t *testing.T) {
	pool := func(replicas, busy int32) *v1alpha1.WorkerPool {
		return &v1alpha1.WorkerPool{Status: v1alpha1.WorkerPoolStatus{WorkerCounts: v1alpha1.WorkerCounts{Replicas: replicas}, Busy: &busy}}
	}
	for title, test := range map[string]struct {
		before, after *v1alpha1.WorkerPool
		want          bool
	}{
		"scaled up":        {pool(1, 0), pool(2, 0), true},
		"scaled to zero":   {pool(1, 0), pool(0, 0), true},
		"other stats only": {pool(2, 0), pool(2, 2), false},
		"unchanged":        {pool(2, 1), pool(2, 1), false},
	} {
		require.True(t, replicasChanged.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}) == test.want, "%s: not %t", title, test.want)
	}
}
