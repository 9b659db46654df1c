package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// tmuxSession is a program in a terminal of tmux.
type tmuxSession struct {
	t      *testing.T
	socket string
}

// startInTerminal runs a command in a terminal of this size until the end of the test.
func startInTerminal(t *testing.T, columns, rows int, command string) *tmuxSession {
	t.Helper()
	s := &tmuxSession{t, filepath.Join(t.TempDir(), "tmux")}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), command)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() })
	return s
}

func (s *tmuxSession) tmux(args ...string) string {
	s.t.Helper()
	output, err := exec.CommandContext(s.t.Context(), "tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// waitForScreen waits until the terminal shows the text, and returns its lines.
func (s *tmuxSession) waitForScreen(text string) []string {
	s.t.Helper()
	var screen string
	poll.Until(s.t, fmt.Sprintf("the terminal to show %q", text), func() bool {
		screen = s.tmux("capture-pane", "-p")
		return strings.Contains(screen, text)
	})
	return strings.Split(screen, "\n")
}

func TestPluginFitsIntoTerminals(t *testing.T) {
	t.Parallel()
	const common = "nightly-export-of-all-orders-of-all-customers-to-the-warehouse-"
	failed := createSequence(t, testbuilder.SequentialJob(common+"z", "").Step("load").Obj())
	for i := range 40 {
		sj := testbuilder.SequentialJob(fmt.Sprintf("%s%02d", common, i), failed.sj.Namespace).Step("load").Suspend().Obj()
		mustCreate(t, sj)
	}
	failed.endStep("load", 1, "disk full")
	failed.waitForPhase(v1alpha1.PhaseFailed)
	binary := filepath.Join(t.TempDir(), "kubectl-yardmaster")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/kubectl-yardmaster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	command := fmt.Sprintf("%s seq watch --kubeconfig=%s", binary, newAPIServerProxy(t).writeKubeconfig(t, failed.sj.Namespace))

	for title, size := range map[string]struct {
		columns, rows int
		// name is the end of the first name, and last is below the table.
		name, last string
	}{
		"80x24: the failed one is first, names are shortened in the middle, and the rest is counted": {80, 24, "house-z ", "… and "},
		"200x60: all are shown with their names":                                                     {200, 60, common + "z ", "✔ succeeded"},
	} {
		t.Run(title, func(t *testing.T) {
			lines := startInTerminal(t, size.columns, size.rows, command).waitForScreen(size.last)
			first := lines[1]
			if !strings.HasPrefix(lines[0], "NAME") || !strings.HasPrefix(first, "nightly-") || !strings.Contains(first, size.name) || !strings.Contains(first, "Failed") {
				t.Errorf("the terminal shows\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}
