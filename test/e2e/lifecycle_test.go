//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The objects of a namespace are deleted in no defined order. This test enforces the worst one:
// the operator's permissions are deleted before all objects with its finalizers.
func testNamespaceIsDeleted(t *testing.T) {
	o := newQueueEnv(t, terminatingNamespace)
	o.createQueue("purged", func(q *v1alpha1.Queue) { q.Spec.DeletionPolicy = v1alpha1.DeletionPurge })
	o.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 2) })
	o.waitUntilWorkers(2)
	o.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 100, rate: 100, takes: time.Second})
	o.waitUntilInFlight(4)
	s := createSequenceIn(t, terminatingNamespace, testbuilder.SequentialJob("running", "").Step("a", shellScript("trap exit TERM; sleep 3600 & wait")).Obj())
	s.waitForRunningPod("a")

	o.runKubectl("delete", "rolebindings", "--selector", "yardmaster.dev/deployment")
	poll.Until(t, "the operator to have lost its permissions", func() bool {
		return !slices.Contains(operatorPermissions(t, terminatingNamespace), "patch pods")
	})
	o.runKubectl("delete", "workerpools,queues", "--all", "--wait=false")
	s.deleteSequence()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: terminatingNamespace}}
	for _, object := range []client.Object{s.sj, o.getPool()} {
		if !objectExists(t, object) || len(object.GetFinalizers()) == 0 {
			t.Errorf("%s lost its finalizer although its namespace is not terminating", object.GetName())
		}
	}
	start := time.Now()
	require.NoError(t, cluster.Delete(t.Context(), ns))
	waitUntilDeleted(t, ns)
	t.Logf("the namespace was deleted after %v", roundedSince(start))

	// Later tests need the operator, which needs all watched namespaces when it restarts.
	require.NoError(t, createNamespace(t.Context(), terminatingNamespace, "restricted"))
	require.NoError(t, deployOperator(t.Context(), exclusiveNamespaces))
	require.NoError(t, waitForOperator(t.Context()))
}
