package progress

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

// compile is a step that reports downloads, then packages, then linking.
func compile(report Report) error {
	time.Sleep(5 * time.Second)
	report(Status{Activity: "downloading modules", Done: 37})
	time.Sleep(10 * time.Second)
	report(Status{Activity: "compiling packages", Total: 200})
	time.Sleep(10 * time.Second)
	report(Status{Activity: "compiling packages", Done: 50, Total: 200})
	time.Sleep(10 * time.Second)
	report(Status{Activity: "linking"})
	time.Sleep(10 * time.Second)
	return nil
}

func TestWithoutATerminalALongStepPrintsItsStatusEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, Plain(&out).Step("building", "built", compile))
		want := `  building ...
    downloading modules: 37 so far (10s)
    compiling packages: 0 of 200 (20s)
    compiling packages: 50 of 200, about 50 s left (30s)
    linking (40s)
  built (45s)
`
		got := out.String()
		require.True(t, got == want, "got\n%swant\n%s", got, want)
	})
}

func TestTheLiveLineFitsIntoTheTerminal(t *testing.T) {
	for _, status := range []Status{{}, {Activity: "linking"}, {Activity: "compiling", Done: 1204, Total: 2837}, {Activity: "compiling", Done: 3, Total: 2}} {
		for width := range 120 {
			s := &step{title: "building kubernetes v1.36.3", start: time.Now(), status: status}
			got := s.live(0, width)
			require.True(t, columns(got) < max(width, 1), "%d columns in %d: %q", columns(got), width, got)
		}
	}
}

func TestFailedStepPrintsTheFailureAndReturnsTheError(t *testing.T) {
	var out bytes.Buffer
	failure := errors.New("failure")
	err := Plain(&out).Step("building", "built", func(Report) error { return failure })
	require.True(t, errors.Is(err, failure), "got %v", err)
	got := out.String()
	require.True(t, strings.Contains(got, "failed: building"), "got %q", got)
}
