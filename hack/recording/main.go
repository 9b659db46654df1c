// Command recording runs commands in a terminal and writes what it shows as an animated image:
//
//	recording FILE.svg COMMAND…
//
// tmux is the terminal. The image needs no script, has the light or dark theme of its reader, plays once, and ends with the
// last screen, which is all that readers see who reduce motion.
package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	columns, rows = 128, 28
	interval      = 100 * time.Millisecond
	// longestPause is what remains of a longer time in which nothing changes.
	longestPause = 1200 * time.Millisecond
	maxTime      = 10 * time.Minute
	// The size of a character, in pixels.
	width, height = 8.4, 18.0
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: recording FILE COMMAND…")
		os.Exit(2)
	}
	screens, err := record(context.Background(), os.Args[2:])
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(draw(screens)), 0o644) //nolint:gosec // a page
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// screen is what the terminal shows from a time on: lines with escape sequences for colors.
type screen struct {
	from  time.Duration
	lines []string
}

// record returns the screens of a terminal in which the commands run one after another.
func record(ctx context.Context, commands []string) ([]screen, error) {
	var story strings.Builder
	for _, command := range commands {
		quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
		fmt.Fprintf(&story, "printf '\\033[1m$ %%s\\033[0m\\n' %s; sleep 1; eval %s; code=$?; sleep 2; ", quoted, quoted)
	}
	story.WriteString("[ $code = 0 ] || sleep infinity")
	tmux := func(args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, "tmux", append([]string{"-u", "-f", "/dev/null", "-L", "recording-" + strconv.Itoa(os.Getpid())}, args...)...).Output()
	}
	if _, err := tmux("new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), "bash", "-c", story.String(), ";", "set-option", "status", "off"); err != nil {
		return nil, fmt.Errorf("starting tmux: %w", err)
	}
	defer func() { _, _ = tmux("kill-server") }()
	var screens []screen
	for started := time.Now(); time.Since(started) < maxTime; time.Sleep(interval) {
		shown, err := tmux("capture-pane", "-e", "-p")
		if err != nil && len(screens) > 0 {
			return screens, nil // the terminal was closed after the last command
		}
		lines := strings.Split(string(shown), "\n")
		if n := len(screens); n > 0 && slices.EqualFunc(screens[n-1].lines, lines, differOnlyInTimes) {
			screens[n-1].lines = lines
			continue
		}
		screens = append(screens, screen{time.Since(started), lines})
	}
	return nil, errors.New("the last command failed, or did not end")
}

var ages = regexp.MustCompile(`[0-9ms]*\ds\b *`)

// differOnlyInTimes reports whether lines are the same but for how long something took. A recording shows only the last of such
// lines, so that it is short on a busy machine, too.
func differOnlyInTimes(a, b string) bool {
	return ages.ReplaceAllString(a, "") == ages.ReplaceAllString(b, "")
}

const header = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 -8 %g %g">
<style>
svg{--back:#f6f8fa;--line:#d0d7de;--text:#1f2328;--dim:#59636e;--red:#cf222e;--green:#1a7f37;--yellow:#9a6700;--blue:#0969da;--magenta:#8250df;--cyan:#1b7c83}
@media (prefers-color-scheme:dark){svg{--back:#151b23;--line:#3d444d;--text:#f0f6fc;--dim:#9198a1;--red:#f85149;--green:#3fb950;--yellow:#d29922;--blue:#4493f8;--magenta:#ab7df8;--cyan:#39c5cf}}
rect{fill:var(--back);stroke:var(--line)}
text{fill:var(--text);font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
.c1{font-weight:700}.c2{fill:var(--dim)}.c31{fill:var(--red)}.c32{fill:var(--green)}.c33{fill:var(--yellow)}.c34{fill:var(--blue)}.c35{fill:var(--magenta)}.c36{fill:var(--cyan)}
.past{visibility:hidden}
@keyframes show{from,to{visibility:visible}}
@keyframes wait{from,to{visibility:hidden}}
@media (prefers-reduced-motion){text{animation:none!important}}
</style>
<rect x="-11.5" y="-7.5" width="%g" height="%g" rx="8"/>
`

// draw returns the image. A line has an element for each time in which it stays the same.
func draw(screens []screen) string {
	times, used := make([]float64, len(screens)), 0
	var shown, before time.Duration
	for i, s := range screens {
		shown += min(s.from-before, longestPause)
		times[i], before = shown.Seconds(), s.from
		for row, line := range s.lines {
			if line != "" {
				used = max(used, row+1)
			}
		}
	}
	w, h := columns*width+24, float64(used)*height+20
	var image strings.Builder
	fmt.Fprintf(&image, header, w, h, w-1, h-1)
	for row := range used {
		for first := 0; first < len(screens); {
			line, end := screens[first].lines[row], first+1
			for end < len(screens) && screens[end].lines[row] == line {
				end++
			}
			y := float64(row)*height + height*0.75
			switch {
			case line == "":
			case end < len(screens):
				fmt.Fprintf(&image, `<text y="%g" class="past" style="animation:show %.1fs %.1fs">%s</text>`+"\n", y, times[end]-times[first], times[first], spans(line))
			default:
				fmt.Fprintf(&image, `<text y="%g" style="animation:wait %.1fs">%s</text>`+"\n", y, times[first], spans(line))
			}
			first = end
		}
	}
	return image.String() + "</svg>\n"
}

var (
	color = regexp.MustCompile(`\x1b\[([0-9;]*)m`)
	// A cell begins at its column, whatever the width of the characters before.
	cell = regexp.MustCompile(`\S+(?: \S+)*`)
)

// spans returns the cells of a line, each with the color that the escape sequence before it sets.
func spans(line string) string {
	var text strings.Builder
	class, column, from := "", 0, 0
	for _, at := range append(color.FindAllStringSubmatchIndex(line, -1), []int{len(line), len(line), len(line), len(line)}) {
		part := line[from:at[0]]
		for _, c := range cell.FindAllStringIndex(part, -1) {
			x := float64(column+utf8.RuneCountInString(part[:c[0]])) * width
			fmt.Fprintf(&text, `<tspan x="%.4g"%s>%s</tspan>`, x, class, html.EscapeString(part[c[0]:c[1]]))
		}
		column += utf8.RuneCountInString(part)
		from, class = at[1], ""
		if code := line[at[2]:at[3]]; strings.Contains(header, ".c"+code+"{") {
			class = ` class="c` + code + `"`
		}
	}
	return text.String()
}
