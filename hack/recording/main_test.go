package main

import (
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAScreenOfWhichOnlyTimesChangeIsTheSame(t *testing.T) {
	for lines, want := range map[[2]string]bool{
		{"▶ migrate  Running  9s", "▶ migrate  Running  10s"}:                               true,
		{"▶ migrate  Running  \x1b[2m59s\x1b[0m", "▶ migrate  Running  \x1b[2m1m0s\x1b[0m"}: true,
		{"▶ migrate  Running  9s", "✔ migrate  Succeeded  9s"}:                              false,
		{"jobs 1", "jobs 2"}: false,
	} {
		if differOnlyInTimes(lines[0], lines[1]) != want {
			t.Errorf("%q and %q: want %v", lines[0], lines[1], want)
		}
	}
}

func TestALineIsShownWhileTheTerminalShowsIt(t *testing.T) {
	image := draw([]screen{
		{0, []string{"\x1b[1m$ watch\x1b[0m", "", ""}},
		{time.Second, []string{"\x1b[1m$ watch\x1b[0m", "a   \x1b[33m▶\x1b[39m  1 < 2", ""}},
		{time.Minute, []string{"\x1b[1m$ watch\x1b[0m", "a   \x1b[32m✔\x1b[39m", ""}},
	})
	_, lines, _ := strings.Cut(image, `rx="8"/>`+"\n")
	want := `<text y="13.5" style="animation:wait 0.0s"><tspan x="0" class="c1">$ watch</tspan></text>
<text y="31.5" class="past" style="animation:show 1.2s 1.0s"><tspan x="0">a</tspan><tspan x="33.6" class="c33">▶</tspan><tspan x="58.8">1 &lt; 2</tspan></text>
<text y="31.5" style="animation:wait 2.2s"><tspan x="0">a</tspan><tspan x="33.6" class="c32">✔</tspan></text>
</svg>
`
	require.Equal(t, want, lines)
	require.Contains(t, image, `viewBox="-12 -8 1099.2 56"`)
}
