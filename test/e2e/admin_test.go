//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// visitorScript prints the status lines of the responses to requests that change a worker.
const visitorScript = `
send() { printf '%%s HTTP/1.0\r\nHost: x\r\n\r\n' "$1" | nc -w "$3" %[1]s "$2" | head -n 1 | tr -d '\r' | cut -d ' ' -f 2; }
{
	for request in 'POST /drain' 'POST /resume' 'GET /prestop' 'GET /stats'; do echo "$request: $(send "$request" 8081 %[2]d)"; done
	echo "GET /metrics: $(send 'GET /metrics' 18081 60)"
} > /dev/termination-log`

// visitWorker returns what a Pod of another namespace gets from a worker, whose admin port has so many seconds to answer.
func visitWorker(t *testing.T, worker *corev1.Pod, seconds int) string {
	t.Helper()
	pod := createScriptPod(t, "visitor-", nil, fmt.Sprintf(visitorScript, worker.Status.PodIP, seconds))
	waitForSuccess(t, pod)
	return strings.TrimSpace(pod.Status.ContainerStatuses[0].State.Terminated.Message)
}

func testAdminAPI(t *testing.T) {
	env := newQueueEnv(t, adminNamespace)
	env.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 2) })
	env.waitUntilWorkers(2)
	// Each worker always has jobs: one without would end as soon as the operator drains it, and not answer the kubelet.
	env.sendBatch(jobBatch{queue: "orders", run: "job", endless: true, rate: 1, takes: 6 * time.Second})
	workers := env.workerPods()
	for i := range workers {
		want := "POST /drain: \nPOST /resume: \nGET /prestop: \nGET /stats: \nGET /metrics: 200"
		require.Equal(t, want, visitWorker(t, &workers[i], 3))
	}
	env.patchPool(`{"spec":{"networkPolicy":"None"}}`)
	for i := range workers {
		poll.Until(t, "the admin port to be open", func() bool { return canConnect(t, nil, podAddress(&workers[i], 8081)) })
		want := "POST /drain: 403\nPOST /resume: 403\nGET /prestop: 404\nGET /stats: 200\nGET /metrics: 200"
		require.Equal(t, want, visitWorker(t, &workers[i], 60))
	}
	env.patchPool(`{"spec":{"networkPolicy":null}}`)
	after := env.workerPods()
	for i := range after {
		if after[i].Name != workers[i].Name || after[i].Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("worker %s was restarted or replaced", workers[i].Name)
		}
	}
	// The operator and the kubelet drain workers.
	env.resizePool(1)
	env.resizePool(2)
	env.waitUntilInFlight(4)
	env.runKubectl("delete", "pod", env.workerPods()[0].Name)
	env.waitUntilWorkers(2)
	env.endBatches()
	env.waitUntilAllDone()
	env.wantEachDoneOnce(1, "job")
	env.wantHooksSucceeded()
}

// wantHooksSucceeded checks that the kubelet could drain each worker that it stopped. The operator can have drained a
// deleted worker before the kubelet learns of the deletion. Then the kubelet restarts it, and nothing answers its hook yet.
func (env *queueEnv) wantHooksSucceeded() {
	env.t.Helper()
	var events eventsv1.EventList
	require.NoError(env.t, cluster.List(env.t.Context(), &events, client.InNamespace(env.namespace)))
	restarted := map[string]bool{}
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "Created" && (e.Series != nil || e.DeprecatedCount > 1) {
			restarted[e.Regarding.Name] = true
		}
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "FailedPreStopHook" && !restarted[e.Regarding.Name] {
			env.t.Errorf("the hook of the kubelet failed: %s", e.Note)
		}
	}
}
