//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/yardmaster/yardmaster/localcluster/internal/process"
	"github.com/yardmaster/yardmaster/localcluster/internal/require"
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
	mustLocalcluster(t, "up", "--name", other)
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
	mustKubectl(t, "wait", "--for=condition=ready", "pod/running", "--timeout="+timeout.String())
}

func stopCluster(t *testing.T) {
	t.Helper()
	mustLocalcluster(t, "down")
}

// killProcesses kills the processes of one component, or all if component is empty.
func killProcesses(t *testing.T, component string) {
	t.Helper()
	found, err := process.Find(clusterDir(t))
	require.NoError(t, err)
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
	require.NoError(t, syscall.Unlink(clusterDir(t)+"/cluster.json"))
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

// listRemains returns what a cluster could leave on the machine, each described by one
// line: processes, mounts, control groups, interfaces and directories.
func listRemains(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, list := range []func(*testing.T) []string{processes, mounts, controlGroups, interfaces, directories} {
		for _, remains := range list(t) {
			found[remains] = true
		}
	}
	return found
}

// processes returns the processes of this cluster and those in other namespaces than the test,
// as containers are. Those of other clusters are left out.
func processes(t *testing.T) []string {
	t.Helper()
	thisCluster := clusterDir(t)
	var found []string
	for _, dir := range glob(t, "/proc/[0-9]*") {
		cluster := clusterOf(dir)
		if cluster != thisCluster && (cluster != "" || !isInOtherNamespace(dir)) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may end now
		found = append(found, fmt.Sprintf("process %s %q", filepath.Base(dir), command))
	}
	return found
}

// clusterOf returns the directory of the cluster that a process or one of its ancestors belongs to, or "".
func clusterOf(process string) string {
	for {
		environment, err := os.ReadFile(filepath.Join(process, "environ"))
		if err != nil { // it has ended
			return ""
		}
		for variable := range strings.SplitSeq(string(environment), "\x00") {
			if dir, found := strings.CutPrefix(variable, "LOCALCLUSTER_DIR="); found {
				return dir
			}
		}
		parent := parentOf(process)
		if parent == "0" || parent == "" {
			return ""
		}
		process = filepath.Join("/proc", parent)
	}
}

func parentOf(process string) string {
	status, err := os.ReadFile(filepath.Join(process, "status"))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:")
	parent, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(parent)
}

func isInOtherNamespace(process string) bool {
	for _, namespace := range []string{"pid", "net", "mnt"} {
		target, err := os.Readlink(filepath.Join(process, "ns", namespace))
		if err != nil { // it has ended
			return false
		}
		if current, err := os.Readlink("/proc/self/ns/" + namespace); err == nil && current != target {
			return true
		}
	}
	return false
}

func mounts(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	var found []string
	for line := range strings.SplitSeq(string(content), "\n") {
		found = append(found, "mount "+line)
	}
	return found
}

func controlGroups(t *testing.T) []string {
	t.Helper()
	const group = "localcluster-" + clusterName + "-*"
	return append(glob(t, "/sys/fs/cgroup/*/"+group), glob(t, "/sys/fs/cgroup/"+group)...)
}

func interfaces(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	require.NoError(t, err)
	var found []string
	for _, link := range links {
		found = append(found, "interface "+link.Attrs().Name)
	}
	return found
}

// directories returns the cluster's directory, and those that its programs use by default.
func directories(t *testing.T) []string {
	t.Helper()
	found := glob(t, clusterDir(t))
	for _, dir := range []string{
		"/var/lib/kubelet", "/var/lib/cni", "/var/lib/containerd", "/run/containerd", "/var/log/pods", "/var/log/containers",
		"/etc/cni", "/opt/cni", "/usr/libexec/kubernetes", "/run/localcluster",
	} {
		found = append(found, glob(t, dir)...)
	}
	return found
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return found
}
