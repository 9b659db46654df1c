package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
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
	command.Env = s.environ()
	if os.Getuid() == 0 { // root may read all processes
		const user = 61234 // no other process has it
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		for _, path := range []string{result, script, s.environment["AGENTIC_PROMPT_FILE"], s.environment["AGENTIC_SESSION_FILE"], s.environment["AGENTIC_WORKSPACE"], s.environment["HOME"]} {
			require.NoError(t, errors.Join(os.Chown(path, user, user), os.Chmod(filepath.Dir(filepath.Dir(result)), 0o755)))
		}
	}
	out, err := command.CombinedOutput()
	require.True(t, err == nil, "%v: %s", err, out)
	require.Contains(t, string(out), "/proc/self/exe --profile exec")
	for _, text := range []string{"secret-of-the-runner", "it can read"} {
		require.True(t, !strings.Contains(string(out), text), "the agent reads:\n%s", out)
	}
}

// maxRunnerMemory is the memory that images of agents have to leave for the runner.
const maxRunnerMemory = 30 << 20

func TestRunnerNeedsLittleMemoryWhateverItsAgentWrites(t *testing.T) {
	program := buildRunner(t)
	const line = `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"`
	text := strings.Repeat("text ", 100)
	for title, script := range map[string]string{
		"50 MB in one line":          `head -c 50000000 /dev/zero | tr '\0' x; echo`,
		"50 MB in short lines":       `yes '` + line + text + `"}]}}' | head -c 50000000; echo`,
		"50 MB in the longest lines": `i=0; while [ $i -lt 50 ]; do i=$((i+1)); printf '%s' '` + line + `'; head -c 1000000 /dev/zero | tr '\0' x; echo '"}]}}'; done`,
		"50 MB of nonsense":          `head -c 50000000 /dev/urandom; echo`,
		"50 MB of errors":            `yes "` + text + `" | head -c 50000000 >&2`,
	} {
		t.Run(title, func(t *testing.T) {
			s := newTestSession(t, "p")
			profile := filepath.Join(t.TempDir(), "profile.yaml")
			writeTestFile(t, profile, "name: test\nparser: claude-code\narguments: [['{arguments}']]\n")
			peakFile := filepath.Join(t.TempDir(), "peak")
			command := exec.Command(program, "--profile-file", profile, "--", "sh", "-c", script+`
grep VmHWM /proc/$PPID/status >"$1" # not the usage that the kernel reports for the process: it includes that of this test before exec
echo '{"type":"result","subtype":"success","result":"done","total_cost_usd":0.5,"usage":{"input_tokens":3}}'`, "sh", peakFile)
			for name, value := range s.environment {
				command.Env = append(command.Env, name+"="+value)
			}
			command.Env = append(command.Env, "PATH="+os.Getenv("PATH"))
			require.NoError(t, command.Run())
			raw, err := os.ReadFile(peakFile)
			require.NoError(t, err)
			peak := 0
			_, err = fmt.Sscanf(string(raw), "VmHWM: %d kB", &peak)
			require.NoError(t, err)
			const kibibyte = 1024
			memory := peak * kibibyte
			t.Logf("%.1f MB", float64(memory)/1e6)
			require.True(t, memory <= maxRunnerMemory, "the runner used %d bytes, at most %d are allowed", memory, maxRunnerMemory)
			got := s.result()
			require.True(t, got.Summary == "done" && *got.CostUSD == "0.5", "result %+v", got)
		})
	}
}
