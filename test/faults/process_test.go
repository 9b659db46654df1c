package faults

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestScriptsBehaveAsTheirFaultSays(t *testing.T) {
	const killed = -1
	for fault, want := range map[Fault]int{ExitsWithZero: 0, ExitsWithAnotherCode: 3, IgnoresSIGTERM: killed} {
		t.Run("a process that "+string(fault), func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), "sh", "-c", Script(fault))
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			group := -command.Process.Pid
			if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
				t.Fatalf("read %q: %v", line, err)
			}
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if want == killed {
				if !ignoresSIGTERM(t, command.Process.Pid) {
					t.Error("the process does not ignore SIGTERM")
				}
				if err := syscall.Kill(group, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			_ = command.Wait()
			if got := command.ProcessState.ExitCode(); got != want {
				t.Errorf("the exit code is %d, want %d", got, want)
			}
		})
	}
}

// ignoresSIGTERM reads the mask of ignored signals, because a signal that has no effect cannot be awaited.
func ignoresSIGTERM(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigIgn:")
	mask, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	ignored, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ignored&(1<<(syscall.SIGTERM-1)) != 0
}
