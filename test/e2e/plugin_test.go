//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// buildPlugin makes all tests share one build of the plugin.
var buildPlugin sync.Once

func newPluginCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	buildPlugin.Do(func() { require.NoError(t, runInRepository(t.Context(), "make", "plugin")) })
	command := exec.CommandContext(t.Context(), filepath.Join(repositoryRoot, "bin", "kubectl-yardmaster"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv("KUBECONFIG"))
	return command
}

// runPluginBinary runs the kubectl plugin and returns its standard output and exit code.
func runPluginBinary(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	var stderr bytes.Buffer
	command := newPluginCommand(t, args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	if stderr.Len() > 0 {
		t.Logf("%s: %s", command, stderr.String())
	}
	return string(out), code
}

func testPluginFollowsLogs(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("followed", "").
		Step("one", shellScript("for i in 1 2 3; do echo line $i; sleep 1; done")).
		Step("two", shellScript("echo at once")).
		Step("three", shellScript("echo failing; exit 3")).Obj())
	// The command starts before the first Pod exists.
	output, code := runPluginBinary(t, "seq", "logs", "-f", "-n", watchedNamespace, s.sj.Name)
	want := "one | line 1\none | line 2\none | line 3\ntwo | at once\nthree | failing\n"
	require.Equal(t, want, output)
	require.Equal(t, 0, code)
	again, _ := runPluginBinary(t, "seq", "logs", "-n", watchedNamespace, s.sj.Name, "--step", "two")
	require.Equal(t, "two | at once\n", again)
}
