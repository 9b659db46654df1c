//go:build e2e

// Package e2e starts real clusters with the name "localcluster-e2e". Run it as root with
// go test -tags e2e ./e2e; the first run builds the clusters' programs.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
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

const clusterName = "localcluster-e2e"

const timeout = 90 * time.Second

var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "localcluster-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "localcluster")
	build := exec.Command("go", "build", "-o", program, "../cmd/localcluster")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building localcluster: %v\n%s", err, output)
		return 1
	}
	// Build now, so that the tests' timeouts do not include it.
	if os.Geteuid() == 0 {
		build := exec.Command(program, "build")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return 1
		}
	}
	return m.Run()
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a real node needs root, and this test does not run as root")
	}
}

func localcluster(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{args[0], "--name", clusterName}, args[1:]...)
	output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("localcluster %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), err
}

func mustLocalcluster(t *testing.T, args ...string) string {
	t.Helper()
	output, err := localcluster(t, args...)
	require.NoError(t, err)
	return output
}

// startCluster starts a cluster that is removed at the end of the test.
func startCluster(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		output, err := exec.CommandContext(context.Background(), program, "down", "--name", clusterName).CombinedOutput()
		require.True(t, err == nil, "down: %v\n%s", err, output)
	})
	mustLocalcluster(t, append([]string{"up"}, args...)...)
}

func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return localcluster(t, append([]string{"kubectl", "--"}, args...)...)
}

func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	return mustLocalcluster(t, append([]string{"kubectl", "--"}, args...)...)
}

func expectOutput(t *testing.T, want string, args ...string) {
	t.Helper()
	got := mustKubectl(t, args...)
	require.True(t, strings.TrimSpace(got) == want, "kubectl %s prints %q, want %q", strings.Join(args, " "), got, want)
}

func waitForOutput(t *testing.T, want string, args ...string) {
	t.Helper()
	var got string
	var err error
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if got, err = kubectl(t, args...); err == nil && strings.Contains(got, want) {
			return
		}
	}
	t.Fatalf("kubectl %s prints %q, %v; want %q in it", strings.Join(args, " "), got, err, want)
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, "kubectl", "--name", clusterName, "--", "apply", "-f", "-")
	command.Stdin = strings.NewReader(manifest)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	require.True(t, err == nil, "applying: %v\n%s\n%s", err, &output, manifest)
}

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
		{"after the file cluster.json was deleted", "node", func(t *testing.T) { require.NoError(t, syscall.Unlink(clusterDir(t)+"/cluster.json")) }},
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
			mustLocalcluster(t, "down")
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
	_, err := localcluster(t, "status")
	require.True(t, err != nil, "status succeeds after the supervisor was killed")
	startCluster(t)
	_, err = kubectl(t, "get", "pod", "running")
	require.True(t, err != nil, "a Pod of the crashed cluster still exists")
	mustLocalcluster(t, "down")
	expectNoRemains(t, before)
}

func TestTwoClustersRunSideBySide(t *testing.T) {
	needsRoot(t)
	startCluster(t)
	const other = "e2e-other"
	defer func() { mustLocalcluster(t, "down", "--name", other) }()
	mustLocalcluster(t, "up", "--name", other)
	runPod(t)
	mustLocalcluster(t, "status", "--name", other)
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

// The tests in test/e2e run Jobs, claims, images, webhooks, Services and NetworkPolicies on the same node. These scenarios are about what they do
// not use.
func TestOnARealNode(t *testing.T) {
	needsRoot(t)
	startCluster(t)
	for _, test := range []struct {
		title string
		run   func(*testing.T)
	}{
		{"Pods have a network immediately after network-policies restarts", restartPolicies},
		{"a killed component restarts and the cluster keeps working", restartComponents},
		{"a second up reports that the cluster already runs, and changes nothing", upAgain},
	} {
		t.Run(test.title, test.run)
	}
}

const webManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox:1.37
    command: [sh, -c, "mkdir /www && echo served > /www/page && exec httpd -f -p 8080 -h /www"]
    readinessProbe: {httpGet: {path: /page, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 443, targetPort: 8080}]}
`

func startWeb(t *testing.T) {
	t.Helper()
	apply(t, webManifest)
	mustKubectl(t, "wait", "--for=condition=ready", "pod/web", "--timeout="+timeout.String())
	waitForOutput(t, "10.244.", "get", "endpointslices", "-l", "kubernetes.io/service-name=web")
}

func restartComponents(t *testing.T) {
	startWeb(t)
	for _, component := range []string{"network-policies", "kubelet", "containerd", "kube-proxy", "coredns", "control-plane"} {
		mustLocalcluster(t, "restart", component)
	}
	waitForOutput(t, "ok", "get", "--raw", "/readyz")
	waitForOutput(t, " Ready ", "get", "nodes")
	apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: after}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "busybox:1.37", command: [sh, -c, "nc -w 5 kubernetes.default 443 < /dev/null && echo after"]}]
`)
	mustKubectl(t, "wait", "--for=condition=complete", "job/after", "--timeout="+timeout.String())
	expectOutput(t, "after", "logs", "job/after")
	expectOutput(t, "0", "get", "pod", "web", "-o", "jsonpath={.status.containerStatuses[0].restartCount}") // containers keep running
}

func upAgain(t *testing.T) {
	before := mustKubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	output, err := localcluster(t, "up")
	require.True(t, err == nil && strings.Contains(output, "already runs"), "up prints %q, %v", output, err)
	expectOutput(t, before, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
}

// clusterDir is the directory above pki/admin.kubeconfig.
func clusterDir(t *testing.T) string {
	t.Helper()
	kubeconfig := mustLocalcluster(t, "kubeconfig")
	return filepath.Dir(filepath.Dir(strings.TrimSpace(kubeconfig)))
}

// restartPolicies restarts network-policies while containerd is stopping a Pod and therefore reports nothing about other Pods.
func restartPolicies(t *testing.T) {
	startWeb(t)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: slow-stop}
spec:
  terminationGracePeriodSeconds: 10
  containers: [{name: main, image: "busybox:1.37", command: [sleep, "100000"]}]
`)
	for _, args := range [][]string{
		{"wait", "--for=condition=ready", "pod/slow-stop", "--timeout=" + timeout.String()},
		{"delete", "pod", "slow-stop", "--wait=false"},
	} {
		mustKubectl(t, args...)
	}
	waitForOutput(t, "Killing", "get", "events", "--field-selector=involvedObject.name=slow-stop", "-o", "jsonpath={.items[*].reason}")
	mustLocalcluster(t, "restart", "network-policies")
	expectOutput(t, "reached", "exec", "web", "--", "sh", "-c", "nc -w 5 10.211.0.2 6443 < /dev/null && echo reached")
	mustKubectl(t, "wait", "--for=delete", "pod/slow-stop", "--timeout="+timeout.String())
}
