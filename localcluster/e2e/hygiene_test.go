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
	for _, mode := range []string{"node", "control-plane"} {
		for _, story := range []struct {
			title  string
			happen func(*testing.T)
		}{
			{"after a quiet life", func(*testing.T) {}},
			{"after the supervisor was killed", func(t *testing.T) { kill(t, "supervisor") }},
			{"after every process was killed", func(t *testing.T) { kill(t, "") }},
			{"after the record of the cluster was lost", loseRecord},
		} {
			t.Run(mode+" "+story.title, func(t *testing.T) {
				if mode == "node" {
					needsRoot(t)
				}
				before := traces(t)
				up(t, "--mode", mode)
				if mode == "node" {
					runPod(t)
				}
				story.happen(t)
				down(t)
				expectSame(t, before)
			})
		}
	}
}

func TestSecondDownSucceeds(t *testing.T) {
	up(t, "--mode", "control-plane")
	down(t)
	down(t)
}

func TestUpAfterACrashStartsANewCluster(t *testing.T) {
	needsRoot(t)
	before := traces(t)
	up(t)
	runPod(t)
	kill(t, "supervisor")
	if _, err := localcluster(t, "status"); err == nil {
		t.Error("the status is up after the supervisor was killed")
	}
	up(t)
	if _, err := kubectl(t, "get", "pod", "running"); err == nil {
		t.Error("a Pod of the crashed cluster is still there")
	}
	down(t)
	expectSame(t, before)
}

func TestTwoClustersRunSideBySide(t *testing.T) {
	needsRoot(t)
	up(t)
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
	if _, err := kubectl(t, "wait", "--for=condition=ready", "pod/running", "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
}

func down(t *testing.T) {
	t.Helper()
	if _, err := localcluster(t, "down"); err != nil {
		t.Fatal(err)
	}
}

// kill kills the processes of one component, or all.
func kill(t *testing.T, component string) {
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

func loseRecord(t *testing.T) {
	if err := syscall.Unlink(clusterDir(t) + "/cluster.json"); err != nil {
		t.Fatal(err)
	}
}

// expectSame waits a moment for what the kernel is still clearing away.
func expectSame(t *testing.T, before map[string]bool) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = slices.DeleteFunc(slices.Sorted(maps.Keys(traces(t))), func(trace string) bool { return before[trace] })
		if len(left) == 0 {
			return
		}
	}
	for _, trace := range left {
		t.Errorf("left behind: %s", trace)
	}
}
