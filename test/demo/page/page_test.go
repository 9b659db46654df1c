package page

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

func newTestPage(verbose bool) (*Page, *bytes.Buffer) {
	var out bytes.Buffer
	return New(terminal.NewScreen(&out, terminal.Style{}), verbose), &out
}

func TestALongStepShowsASignOfProgressEvery10Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, out := newTestPage(false)
		err := p.Step("building", "built", func() error {
			time.Sleep(25 * time.Second)
			return nil
		})
		require.NoError(t, err)
		want := "  … building (10s)\n  … building (20s)\n  ✔ built (25s)\n"
		require.Equal(t, want, out.String())
	})
}

func TestSectionsThatStillRunAreNamedEvery10Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, out := newTestPage(false)
		one, other := p.NewSection("One", "namespace one"), p.NewSection("Other", "namespace other")
		finish := p.ShowSections()
		one.Draw([]string{"NAME", "a"})
		one.Log("a detail")
		other.Act("Resuming it:", "kubectl patch")
		one.End(nil)
		time.Sleep(15 * time.Second)
		other.End(errors.New("timeout"))
		finish()
		want := `    0s  Other          Resuming it:
    0s  Other          $ kubectl patch
  … Other: still running (10s)

✔ One   namespace one
  NAME
  a

✘ Other   namespace other
`
		require.Equal(t, want, out.String())
	})
}

func TestASmallTerminalShowsLessOfWhatHasEnded(t *testing.T) {
	p, _ := newTestPage(false)
	ended, running := p.NewSection("Ended", "here"), p.NewSection("Running", "there")
	for _, s := range []*Section{ended, running} {
		s.Draw([]string{"NAME"})
		s.action = []string{"Resuming it:"}
	}
	ended.End(nil)
	for shown, want := range map[detail]string{
		allDetails:       "\n✔ Ended   here\n  NAME\n  Resuming it:\n\n… Running   there\n  NAME\n  Resuming it:",
		detailsOfRunning: "✔ Ended   here\n\n… Running   there\n  NAME\n  Resuming it:",
		boardsOfRunning:  "✔ Ended   here\n… Running   there\n  NAME",
	} {
		if diff := cmp.Diff(want, strings.Join(p.lines(shown), "\n")); diff != "" {
			t.Errorf("detail %d (-want +got):\n%s", shown, diff)
		}
	}
}
