package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxRunnerMemory is the memory that images of agents have to leave for the runner.
const maxRunnerMemory = 30 << 20

func TestRunnerNeedsLittleMemoryWhateverItsAgentWrites(t *testing.T) {
	program := filepath.Join(t.TempDir(), "session-runner")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "../../../cmd/session-runner").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const line = `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"`
	text := strings.Repeat("text ", 100)
	for title, script := range map[string]string{
		"100 MB in one line":          `head -c 100000000 /dev/zero | tr '\0' x; echo`,
		"100 MB in short lines":       `yes '` + line + text + `"}]}}' | head -c 100000000; echo`,
		"100 MB in the longest lines": `i=0; while [ $i -lt 100 ]; do i=$((i+1)); printf '%s' '` + line + `'; head -c 1000000 /dev/zero | tr '\0' x; echo '"}]}}'; done`,
		"100 MB of nonsense":          `head -c 100000000 /dev/urandom; echo`,
		"100 MB of errors":            `yes "` + text + `" | head -c 100000000 >&2`,
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
			if err := command.Run(); err != nil {
				t.Fatalf("%v", err)
			}
			raw, err := os.ReadFile(peakFile)
			if err != nil {
				t.Fatal(err)
			}
			peak := 0
			if _, err := fmt.Sscanf(string(raw), "VmHWM: %d kB", &peak); err != nil {
				t.Fatal(err)
			}
			const kibibyte = 1024
			memory := peak * kibibyte
			t.Logf("%.1f MB", float64(memory)/1e6)
			if memory > maxRunnerMemory {
				t.Errorf("the runner used %d bytes, at most %d are allowed", memory, maxRunnerMemory)
			}
			if got := s.result(); got.Summary != "done" || *got.CostUSD != "0.5" {
				t.Errorf("result %+v", got)
			}
		})
	}
}
