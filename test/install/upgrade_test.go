//go:build e2e

package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const baselineImage = "registry.example/yardmaster:baseline"

// upgradedObjects are objects of the other kinds at work.
const upgradedObjects = `
apiVersion: yardmaster.dev/v1alpha1
kind: WorkerPool
metadata: {name: workers}
spec:
  queues: [{name: jobs}]
  replicas: 1
  drain: {mode: Signal}
  template:
    spec:
      containers: [{name: worker, image: "busybox:1.37", command: [sh, -c, "trap 'exit 0' TERM; sleep 86400 & wait"], securityContext: {runAsUser: 1000}}]
---
apiVersion: yardmaster.dev/v1alpha1
kind: Policy
metadata: {name: limits}
spec: {limits: {maxReplicasPerPool: 10}}
---
apiVersion: yardmaster.dev/v1alpha1
kind: SessionRunner
metadata: {name: shell}
spec:
  image: busybox:1.37
  network: {isolation: Preferred}
  template:
    spec:
      securityContext: {runAsUser: 1000}
      containers: [{name: runner, command: [sh, -c, "until [ -f /tmp/released ]; do sleep 0.2; done"]}]
---
apiVersion: yardmaster.dev/v1alpha1
kind: AgenticSession
metadata: {name: long}
spec: {runner: shell, prompt: wait}
`

// Work of each kind begins with the release that test/install/baseline names, and continues with this version, and with the earlier
// one after a downgrade. The queue of that release has to be created again.
func TestUpgradeFromTheBaselineAndBackInterruptsNoWork(t *testing.T) {
	raw, err := os.ReadFile("baseline")
	require.NoError(t, err)
	commit := strings.TrimSpace(string(raw))
	earlier, err := filepath.Abs(filepath.Join(t.TempDir(), "baseline"))
	require.NoError(t, err)
	// The tools are those of this version, which differ only in speed.
	run(t, "git worktree add --detach "+earlier+" "+commit+" && cp -a bin "+earlier+"/bin")
	defer run(t, "git worktree remove --force "+earlier)
	run(t, earlier+"/test/install/programs/docker --tag "+baselineImage)
	createNamespaces(t, "nats", "team-a")
	run(t, "kubectl apply -k config/nats && kubectl -n nats rollout status statefulset/nats --timeout=10m")

	installed := " NAMESPACES=team-a && kubectl -n yardmaster-system rollout status deployment/yardmaster --timeout=10m"
	run(t, "make -C "+earlier+" install deploy IMG="+baselineImage+installed)
	wantSequence(t, "team-a")
	first := startSequence(t, "team-a")
	createQueueAndSchedule(t, "team-a")
	run(t, "kubectl -n team-a apply -f - <<'YAML'"+upgradedObjects+"YAML")
	wantAllKindsWork(t)
	wantQueueReady(t)
	before := podsAtWork(t)

	run(t, "make install deploy IMG="+image+installed)
	wantSequence(t, "team-a")
	wantAllKindsWork(t)
	wantQueueRefused(t)
	release(t, first)
	second := startSequence(t, "team-a")

	run(t, "make -C "+earlier+" install deploy IMG="+baselineImage+installed)
	wantSequence(t, "team-a")
	wantAllKindsWork(t)
	wantQueueReady(t)
	release(t, second)
	require.Equal(t, before, podsAtWork(t))
	run(t, "kubectl -n team-a exec "+strings.Fields(run(t, "kubectl -n team-a get pods -l yardmaster.dev/session=long -o name"))[0]+" -- touch /tmp/released")
	run(t, "kubectl -n team-a wait agenticsession/long --for jsonpath='{.status.phase}'=Completed --timeout 5m")

	run(t, "make install deploy IMG="+image+installed) // whose targets delete it
	wantQueueRefused(t)
	run(t, "kubectl -n team-a delete workerpool/workers --timeout 5m && kubectl -n team-a patch queue jobs --type merge -p '{\"spec\":{\"deletionPolicy\":\"Drain\"}}'"+
		" && kubectl -n team-a delete queue/jobs --timeout 5m")
	createQueue(t, "team-a")
	wantQueueReady(t)
	run(t, "kubectl -n team-a delete schedules,agenticsessions,workerpools,queues --all --timeout 5m && make uninstall undeploy NAMESPACES=team-a && kubectl delete namespace team-a nats")
	wantNothingLeft(t)
}

func wantQueueReady(t *testing.T) {
	t.Helper()
	run(t, "kubectl -n team-a wait queue/jobs --for condition=Ready --timeout 5m")
}

// wantQueueRefused waits until the Queue says how to replace its stream, which any producer can erase.
func wantQueueRefused(t *testing.T) {
	t.Helper()
	run(t, "kubectl -n team-a wait queue/jobs --for jsonpath='{.status.conditions[?(@.type==\"ConfigSynced\")].reason}'=RefusedByBroker --timeout 5m")
	message := run(t, "kubectl -n team-a get queue jobs -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].message}'")
	require.Contains(t, message, "set spec.deletionPolicy of the Queue to Drain")
}

// wantAllKindsWork waits until the objects of all kinds but the Queue are ready, and a time of the Schedule has run.
func wantAllKindsWork(t *testing.T) {
	t.Helper()
	run(t, "kubectl -n team-a wait workerpool/workers policy/limits schedule/each-minute sessionrunner/shell agenticsession/long --for condition=Ready --timeout 5m")
	schedule := &v1alpha1.Schedule{}
	schedule.Namespace, schedule.Name = "team-a", "each-minute"
	began := time.Now()
	poll.Until(t, "the next run of the Schedule", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(schedule), schedule))
		last := schedule.Status.LastScheduleTime
		return last != nil && last.After(began)
	})
}

// podsAtWork returns the UIDs and restarts of the Pods of the pool and of the session.
func podsAtWork(t *testing.T) string {
	t.Helper()
	return run(t, "kubectl -n team-a get pods -l 'yardmaster.dev/workerpool in (workers)' -o jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}'"+
		" && kubectl -n team-a get pods -l yardmaster.dev/session=long -o jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}'")
}
