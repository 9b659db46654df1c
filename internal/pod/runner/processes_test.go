package runner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// readProcesses prints what names the secret in all processes, and what else can be read of the runner.
const readProcesses = `cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' '\n' | grep -a 'secret-of-the[-]runner'
ls -l /proc/[0-9]*/fd 2> /dev/null | grep 'secret-of-the[-]runner'
for file in environ maps mem auxv; do
  dd if=/proc/$PPID/$file of=/dev/null bs=1 count=1 2> /dev/null && echo "it can read $file"
done
ls /proc/$PPID/fd 2> /dev/null && echo "it can read fd"
tr '\0' ' ' < /proc/$PPID/cmdline
`

// The agent has the user of the runner, so only the runner can close its process.
func TestTheAgentReadsNothingOfTheRunnersProcess(t *testing.T) {
	s := newTestSession(t, "p")
	result := filepath.Join(t.TempDir(), "secret-of-the-runner")
	writeTestFile(t, result, "")
	s.set(map[string]string{"AGENTIC_RESULT_FILE": result, "PATH": os.Getenv("PATH"), asRunnerVariable: "yes"})
	script := filepath.Join(s.environment["AGENTIC_WORKSPACE"], "agent.sh")
	writeTestFile(t, script, readProcesses)
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "--profile", "exec", "--", "sh", script)
	for name, value := range s.environment {
		command.Env = append(command.Env, name+"="+value)
	}
	if os.Getuid() == 0 { // root may read all processes
		const user = 61234 // no other process has it
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		for _, path := range []string{result, script, s.environment["AGENTIC_PROMPT_FILE"], s.environment["AGENTIC_SESSION_FILE"], s.environment["AGENTIC_WORKSPACE"], s.environment["HOME"]} {
			if err := errors.Join(os.Chown(path, user, user), os.Chmod(filepath.Dir(filepath.Dir(result)), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text := string(out); !strings.Contains(text, "/proc/self/exe --profile exec") || strings.Contains(text, "secret-of-the-runner") || strings.Contains(text, "it can read") {
		t.Errorf("the agent reads:\n%s", text)
	}
}
