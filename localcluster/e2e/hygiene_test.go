//go:build e2e

package e2e

import (
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

func TestDownLeavesNothingBehind(t *testing.T) {
	undisturbed := func(*testing.T) {}
	for _, test := range []struct {
		title, mode string
		disrupt     func(*testing.T)
	}{
		{"without a node", "control-plane", undisturbed},
		{"after an undisturbed run", "node", undisturbed},
		{"after the supervisor was killed", "node", func(t *testing.T) { killProcesses(t, "supervisor") }},
		{"after every process was killed", "node", func(t *testing.T) { killProcesses(t, "") }},
		{"after the file cluster.json was deleted", "node", deleteClusterFile},
	} {
		t.Run(test.title, func(t *testing.T) {
			if test.mode == "node" {
				needsRoot(t)
			}
			before := listRemains(t)
			startCluster(t, "--mode", test.mode)
			if test.mode == "node" {
				runPod(t)
			}
			test.disrupt(t)
			stopCluster(t)
			expectNoRemains(t, before)
		})
	}
}

func TestUpAfterACrashStartsANewCluster(t *testing.T) {
	needsRoot(t)
	before := listRemains(t)
	startCluster(t)
	runPod(t)
	killProcesses(t, "supervisor")
	if _, err := localcluster(t, "status"); err == nil {
		t.Error("status succeeds after the supervisor was killed")
	}
	startCluster(t)
	if _, err := kubectl(t, "get", "pod", "running"); err == nil {
		t.Error("a Pod of the crashed cluster still exists")
	}
	stopCluster(t)
	expectNoRemains(t, before)
}

func TestTwoClustersRunSideBySide(t *testing.T) {
	needsRoot(t)
	startCluster(t)
	const other = "e2e-other"
	defer func() {
		if _, err := localcluster(t, "down", "--name", other); err != nil {
			t.Error(err)
		}
	}()
	if _, err := localcluster(t, "up", "--name", other); err != nil {
		t.Fatal(err)
	}
	runPod(t)
	if _, err := localcluster(t, "status", "--name", other); err != nil {
		t.Error(err)
	}
}

// runPod starts a Pod that does not end by itself, and waits until it runs.
func runPod(t *testing.T) {
	t.Helper()
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: running}
spec: {containers: [{name: main, image: busybox:1.37, command: [sleep, "100000"]}]}
`)
	if _, err := kubectl(t, "wait", "--for=condition=ready", "pod/running", "--timeout="+timeout.String()); err != nil {
		t.Fatal(err)
	}
}

func stopCluster(t *testing.T) {
	t.Helper()
	if _, err := localcluster(t, "down"); err != nil {
		t.Fatal(err)
	}
}

// killProcesses kills the processes of one component, or all if component is empty.
func killProcesses(t *testing.T, component string) {
	t.Helper()
	found, err := process.Find(clusterDir(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		if component != "" && p.Component != component {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
}

func deleteClusterFile(t *testing.T) {
	if err := syscall.Unlink(clusterDir(t) + "/cluster.json"); err != nil {
		t.Fatal(err)
	}
}

// expectNoRemains fails the test if the machine has more than before the cluster. It waits up to
// 5 s, because the kernel removes some of it asynchronously.
func expectNoRemains(t *testing.T, before map[string]bool) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = slices.DeleteFunc(slices.Sorted(maps.Keys(listRemains(t))), func(line string) bool { return before[line] })
		if len(left) == 0 {
			return
		}
	}
	for _, line := range left {
		t.Errorf("down left behind: %s", line)
	}
}
