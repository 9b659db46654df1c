//go:build e2e

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// runPlugin runs a session command of the plugin on the session and checks its exit code.
func (s *sessionTest) runPlugin(code int, args ...string) string {
	s.t.Helper()
	output, got := runPluginBinary(s.t, append([]string{"session", args[0], "-n", s.s.Namespace, s.s.Name}, args[1:]...)...)
	if got != code {
		s.t.Errorf("session %s: exit code %d, want %d; output:\n%s", args[0], got, code, output)
	}
	return output
}

func testPluginFollowsASession(t *testing.T) {
	s := createSession(t, echoRunner, "Fix the test.\n/cost 0.12\n/fail 3 1\nThe test is fixed.", func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Retry = &v1alpha1.SessionRetry{Retry: v1alpha1.Retry{Limit: new(int32(1))}}
	})
	// The command starts before the first Pod exists and follows the second one too.
	log := withoutRunnerNotes(s.runPlugin(0, "logs", "-f"))
	if diff := cmp.Diff("r1-a1 | Fix the test.\nr1-a2 | Fix the test.\nr1-a2 | The test is fixed.\n", log); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	watched := s.runPlugin(0, "watch")
	if last := lastLine(watched); !strings.HasSuffix(last, "Completed, run 1, attempt 2") {
		t.Errorf("the last line of watch is %q", last)
	}
	result := s.runPlugin(0, "result")
	for _, line := range []string{"attempt +run 1, attempt 2", `cost +\$0\.12`, `all runs +\$0\.24`, "Echoed 2 lines"} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(result) {
			t.Errorf("result does not contain %q:\n%s", line, result)
		}
	}
	list, _ := runPluginBinary(t, "session", "list", "-n", sessionsNamespace)
	row := regexp.MustCompile("(?m)^" + s.s.Name + ` +Completed +- +1 +2 +\d+s/4h0m0s +\$0\.24 +echo +`)
	if !row.MatchString(list) {
		t.Errorf("list does not contain %s:\n%s", row, list)
	}
	again := s.runPlugin(0, "restart")
	if !strings.HasSuffix(strings.TrimSpace(again), s.s.Name+" starts run 2") {
		t.Errorf("restart printed %q", again)
	}
	s.waitUntil("to complete its second run", func(status *v1alpha1.AgenticSessionStatus) bool {
		return status.Run == 2 && status.Phase == v1alpha1.SessionCompleted
	})
}

// withoutRunnerNotes removes the lines in which the runner logs what it does.
func withoutRunnerNotes(log string) string {
	return regexp.MustCompile(`(?m)^r\d+-a\d+ \| \d{4}/\d\d/\d\d .*\n`).ReplaceAllString(log, "")
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

func testPluginStopsASession(t *testing.T) {
	s := createSession(t, shellRunner, logbookScript, setPersistentWorkspace)
	s.waitForPhase(v1alpha1.SessionRunning)
	s.waitForLogLine("waiting")
	if output := s.runPlugin(0, "stop"); !strings.HasSuffix(strings.TrimSpace(output), s.s.Name+" stop requested") {
		t.Errorf("stop printed %q", output)
	}
	s.waitForPhase(v1alpha1.SessionStopped)
	s.runPlugin(1, "watch") // a stopped session has not completed
	output := s.runPlugin(0, "restart", "--watch")
	if !strings.Contains(output, s.s.Name+" continues run 1") || !strings.HasSuffix(lastLine(output), "Completed, run 1, attempt 2") {
		t.Errorf("restart --watch printed:\n%s", output)
	}
	if result := s.runPlugin(0, "result"); !strings.Contains(result, "started 1/1 stopped started 1/2") {
		t.Errorf("result printed:\n%s", result)
	}
}
