// Command consoles runs the commands of the console blocks in pages, and compares what they print with the pages:
//
//	consoles FILE…           fails where the output differs
//	consoles -write FILE…    writes the output into the pages
//
// A command begins with "$ " and ends where a shell finds it complete. Its output is compared without times, ages, random
// names and the width of columns; a line [...] stands for any lines. A command that follows something, such as watch, is
// stopped once it has printed what the page shows.
//
// A comment before a block changes how it is run:
//
//	<!-- console: any order -->     the lines may have any order
//	<!-- console: other numbers --> the lines may have any order and other numbers, and there may be more lines
//	<!-- console: part of FILE -->  a block without commands, whose lines are in a console block of the file, which comes first
//	<!-- console: not run: WHY -->
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/test/output"
)

const (
	// maxRunTime is longer than any command of the pages takes, and quietTime than one that follows something waits for its
	// next line on a busy machine.
	maxRunTime = 10 * time.Minute
	quietTime  = 3 * time.Minute
)

func main() {
	write := flag.Bool("write", false, "write the output into the pages")
	flag.Parse()
	differences := 0
	for _, file := range flag.Args() {
		found, err := checkPage(context.Background(), file, *write)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
		differences += found
	}
	if differences > 0 && !*write {
		fmt.Fprintf(os.Stderr, "%d commands print something else than the pages show; make docs writes it\n", differences)
		os.Exit(1)
	}
}

// block is a console block of a page.
type block struct {
	// mode is how the comment before the block changes how it is run; empty without one.
	mode string
	// first is the index of its first line after the fence, and end that of its closing fence.
	first, end int
}

var (
	fence     = regexp.MustCompile("^```([a-z]*)$")
	directive = regexp.MustCompile(`^<!-- console: (.*) -->$`)
)

// findBlocks returns the console blocks that are not excluded.
func findBlocks(lines []string) []block {
	var found []block
	mode := ""
	for i := 0; i < len(lines); i++ {
		if match := directive.FindStringSubmatch(lines[i]); match != nil {
			mode = match[1]
			continue
		}
		match := fence.FindStringSubmatch(lines[i])
		if match == nil {
			if lines[i] != "" {
				mode = ""
			}
			continue
		}
		b, language := block{mode: mode, first: i + 1}, match[1]
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		b.end = i
		if language == "console" && !strings.HasPrefix(b.mode, "not run: ") {
			found = append(found, b)
		}
		mode = ""
	}
	return found
}

// checkPage returns how many commands print something else than the page shows.
func checkPage(ctx context.Context, file string, write bool) (differences int, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(string(content), "\n")
	var page []string
	copied := 0
	for _, b := range findBlocks(lines) {
		page = append(page, lines[copied:b.first]...)
		copied = b.end
		shown, differs, err := b.check(ctx, file, lines[b.first:b.end])
		if err != nil {
			return differences, fmt.Errorf("line %d: %w", b.first+1, err)
		}
		page = append(page, shown...)
		differences += differs
	}
	page = append(page, lines[copied:]...)
	if !write || differences == 0 {
		return differences, nil
	}
	return differences, os.WriteFile(file, []byte(strings.Join(page, "\n")), 0o644) //nolint:gosec // a page
}

// check returns the lines that the block should have, and how many of its commands print something else.
func (b *block) check(ctx context.Context, file string, lines []string) (shown []string, differences int, err error) {
	if whole, isPart := strings.CutPrefix(b.mode, "part of "); isPart {
		return findPart(filepath.Join(filepath.Dir(file), whole), lines)
	}
	for i := 0; i < len(lines); {
		if !strings.HasPrefix(lines[i], "$ ") {
			return nil, 0, fmt.Errorf("%q is the output of no command", lines[i])
		}
		end := i + 1
		for end < len(lines) && !isComplete(ctx, command(lines[i:end])) {
			end++
		}
		want := lines[end:]
		if next := slices.IndexFunc(want, func(line string) bool { return strings.HasPrefix(line, "$ ") }); next >= 0 {
			want = want[:next]
		}
		shown = append(shown, lines[i:end]...)
		fmt.Printf("%s: %s\n", file, lines[i])
		got, err := runCommand(ctx, command(lines[i:end]), func(got []string) bool { return b.isShown(want, got) })
		if err != nil && (len(want) == 0 || len(got) == 0) {
			return nil, 0, fmt.Errorf("%s: %w\n%s", lines[i], err, strings.Join(got, "\n"))
		}
		if isSilent := len(want) == 0; isSilent || b.isShown(want, got) { // a page may omit the output
			shown = append(shown, want...)
		} else {
			differences++
			fmt.Printf("    the page shows:\n%s\n    the command prints:\n%s\n", indent(want), indent(got))
			shown = append(shown, keepShown(want, got)...)
		}
		i = end + len(want)
	}
	return shown, differences, nil
}

// keepShown returns the output, with the lines of the page where they are as the page shows them.
func keepShown(want, got []string) []string {
	kept := slices.Clone(got)
	for i, line := range got {
		isShown := func(shown string) bool {
			return mask(line) != "" && shown != elision && isLine(mask(shown), mask(line))
		}
		if j := slices.IndexFunc(want, isShown); j >= 0 {
			kept[i] = want[j]
		}
	}
	return kept
}

func command(lines []string) string { return strings.TrimPrefix(strings.Join(lines, "\n"), "$ ") }

// isComplete reports whether a shell would run the text, instead of asking for its next line.
func isComplete(ctx context.Context, text string) bool {
	return !strings.HasSuffix(text, "\\") && exec.CommandContext(ctx, "bash", "-n", "-c", text).Run() == nil
}

func indent(lines []string) string { return "        " + strings.Join(lines, "\n        ") }

// runCommand returns the lines that a command printed. It ends a command that follows something when the lines are enough, or when
// no further line comes.
func runCommand(ctx context.Context, text string, isEnough func([]string) bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, maxRunTime)
	defer cancel()
	printed := &output.Buffer{}
	shell := exec.CommandContext(ctx, "bash", "-c", text)
	shell.Stdout, shell.Stderr = printed, printed
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGINT) }
	shell.WaitDelay = time.Minute
	if err := shell.Start(); err != nil {
		return nil, err
	}
	var failure error
	ended := make(chan struct{})
	go func() {
		failure = shell.Wait()
		close(ended)
	}()
	follows := strings.Contains(text, " watch ")
	last, changed := "", time.Now()
	for {
		select {
		case <-ended:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				failure = fmt.Errorf("it did not end within %s", maxRunTime)
			}
			return linesOf(printed.String()), failure
		case <-time.After(time.Second):
			if now := printed.String(); now != last {
				last, changed = now, time.Now()
			}
			if follows && (isEnough(linesOf(last)) || time.Since(changed) > quietTime) {
				cancel()
				<-ended
				return linesOf(printed.String()), nil
			}
		}
	}
}

// linesOf returns the lines of an output as a page shows them.
func linesOf(text string) []string {
	if home, err := os.UserHomeDir(); err == nil {
		text = strings.ReplaceAll(text, home+"/", "~/")
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// elision stands for any lines.
const elision = "[...]"

// isShown reports whether the output is as the page shows it.
func (b *block) isShown(want, got []string) bool {
	want, got = maskAll(want), maskAll(got)
	switch b.mode {
	case "other numbers":
		want, got = maskNumbers(want), maskNumbers(got)
		return !slices.ContainsFunc(want, isMissing(got))
	case "any order":
		isUnknown := func(line string) bool {
			return !slices.ContainsFunc(want, func(shown string) bool { return isLine(shown, line) })
		}
		return !slices.ContainsFunc(got, isUnknown) && !slices.ContainsFunc(want, isMissing(got))
	default:
		return matches(want, got)
	}
}

// isMissing returns a function that reports whether the output lacks a line of a page.
func isMissing(got []string) func(string) bool {
	return func(shown string) bool {
		return shown != elision && !slices.ContainsFunc(got, func(line string) bool { return isLine(shown, line) })
	}
}

// isLine reports whether a line is as the page shows it; [...] stands for any text.
func isLine(shown, line string) bool {
	begin, end, isElided := strings.Cut(shown, elision)
	if !isElided {
		return shown == line
	}
	return strings.HasPrefix(line, begin) && strings.HasSuffix(line, end)
}

func matches(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] == elision:
		return matches(want[1:], got) || len(got) > 0 && matches(want, got[1:])
	default:
		return len(got) > 0 && isLine(want[0], got[0]) && matches(want[1:], got[1:])
	}
}

// masks replace what differs from run to run, in their order.
var masks = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`^ {2}… .*$`), ""}, // progress
	{regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "DATE"},
	{regexp.MustCompile(`\b\d\d:\d\d(:\d\d)?\b`), "TIME"},
	{regexp.MustCompile(`\b(CET|CEST)\b`), "ZONE"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|d|h|m|s))+\b`), "AGE"},
	{regexp.MustCompile(`(-|\bAGE)/AGE\b`), "AGE/AGE"},
	{regexp.MustCompile(`-[0-9a-f]{8,10}\b`), "-HASH"},
	{regexp.MustCompile(`\bon \d+ workers\b`), "on some workers"},
	{regexp.MustCompile(`[▁▂▃▄▅▆▇█·]{2,}`), "BARS"},
	{regexp.MustCompile(`\s+`), " "},
}

func mask(line string) string {
	for _, m := range masks {
		line = m.pattern.ReplaceAllString(line, m.name)
	}
	return strings.TrimSpace(line)
}

// maskAll returns the masked lines that are not empty.
func maskAll(lines []string) []string {
	var masked []string
	for _, line := range lines {
		if line = mask(line); line != "" {
			masked = append(masked, line)
		}
	}
	return masked
}

var number = regexp.MustCompile(`\d+`)

func maskNumbers(lines []string) []string {
	for i := range lines {
		lines[i] = number.ReplaceAllString(lines[i], "N")
	}
	return lines
}

// findPart returns the lines of another page of which those of a block are a part, and how many of them differ.
func findPart(file string, lines []string) (found []string, differences int, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	whole := strings.Split(string(content), "\n")
	for _, line := range lines { // in their order, because two tables may have rows of one name
		i := slices.IndexFunc(whole, func(other string) bool { return mask(other) == mask(line) })
		if i < 0 {
			return nil, 0, fmt.Errorf("%s does not show %q", file, line)
		}
		if found = append(found, whole[i]); whole[i] != line {
			differences++
		}
		whole = whole[i+1:]
	}
	return found, differences, nil
}
