//go:build e2e

// Package e2e starts real clusters with the name "localcluster-e2e". Run it as root with
// go test -tags e2e ./e2e; the first run builds the clusters' programs.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

const clusterName = "localcluster-e2e"

// timeout of waits that normally end within seconds.
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

// localcluster runs one command on the cluster of these tests.
func localcluster(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{args[0], "--name", clusterName}, args[1:]...)
	output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("localcluster %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), err
}

// mustLocalcluster runs one command on the cluster of these tests, which must succeed.
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

// kubectl runs the built-in kubectl and returns what it prints.
func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return localcluster(t, append([]string{"kubectl", "--"}, args...)...)
}

func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	return mustLocalcluster(t, append([]string{"kubectl", "--"}, args...)...)
}

// expectOutput fails the test unless kubectl succeeds and prints exactly this text.
func expectOutput(t *testing.T, want string, args ...string) {
	t.Helper()
	got := mustKubectl(t, args...)
	require.True(t, strings.TrimSpace(got) == want, "kubectl %s prints %q, want %q", strings.Join(args, " "), got, want)
}

// waitForOutput waits until the output of kubectl contains the text.
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

func jobManifest(name, script, containerFields string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: busybox:1.37
        command: [sh, -c, %q]
%s`, name, script, indent(containerFields, 6))
}

func indent(text string, width int) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.Repeat(" ", width) + lines[i]
	}
	return strings.Join(lines, "\n")
}

func waitJob(t *testing.T, name, condition string) {
	t.Helper()
	mustKubectl(t, "wait", "--for=condition="+condition, "job/"+name, "--timeout="+timeout.String())
}
