//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

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

// clusterOf returns the directory of the cluster that a process or one of its
// ancestors belongs to, or "".
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return found
}
