package process

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func start(t *testing.T, cluster, component string) *exec.Cmd {
	t.Helper()
	command := exec.Command("sleep", "1000")
	command.Env = append(os.Environ(), Mark(cluster, component)...)
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return command
}

func TestFindReturnsOnlyProcessesOfTheCluster(t *testing.T) {
	mine, other := t.TempDir(), t.TempDir()
	want := start(t, mine, "kubelet").Process.Pid
	start(t, other, "kubelet")

	// Until the program is loaded, the environment is that of its parent.
	var found []Process
	for deadline := time.Now().Add(time.Minute); len(found) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		found, err = Find(mine)
		require.NoError(t, err)
	}
	require.True(t, len(found) == 1 && found[0].PID == want && found[0].Component == "kubelet", "found %+v, want pid %d", found, want)
}

func TestKillAllLeavesNoProcessOfTheCluster(t *testing.T) {
	mine := t.TempDir()
	command := start(t, mine, "kubelet")
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	require.NoError(t, KillAll(mine))
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it still runs")
	}
}
