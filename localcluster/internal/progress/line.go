package progress

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// plain returns the line that is printed about a running step, or nothing if the step
// reported no status.
func (s *step) plain() string {
	status, left := s.current()
	switch {
	case status.Activity == "":
		return ""
	case status.Total > 0:
		return fmt.Sprintf("%s: %d of %d%s (%s)", status.Activity, status.Done, status.Total, left, s.elapsed())
	}
	return fmt.Sprintf("%s (%s)", status.uncounted(), s.elapsed())
}

// live returns the line that shows a running step on a terminal.
func (s *step) live(frame, width int) string {
	status, left := s.current()
	line := frames[frame%len(frames)] + " " + s.title
	switch {
	case status.Activity == "":
		line += fmt.Sprintf(" (%s)", s.elapsed())
	case status.Total > 0:
		counts := fmt.Sprintf(" %d/%d%s (%s)", status.Done, status.Total, left, s.elapsed())
		line += bar(status, width-1-columns(line)-columns(counts)) + counts
	default:
		line += fmt.Sprintf(", %s (%s)", status.uncounted(), s.elapsed())
	}
	// A line that wraps could not be cleared. The last column stays free, because some
	// terminals wrap after it.
	runes := []rune(line)
	return string(runes[:min(len(runes), max(0, width-1))])
}

func (s Status) uncounted() string {
	if s.Done > 0 {
		return fmt.Sprintf("%s: %d so far", s.Activity, s.Done)
	}
	return s.Activity
}

// bar returns a space and a bar, or nothing if there is not enough space for a bar.
func bar(status Status, space int) string {
	const shortest, longest = 6, 30
	cells := min(space-1, longest)
	if cells < shortest {
		return ""
	}
	full := min(cells*status.Done/status.Total, cells)
	return " " + strings.Repeat("█", full) + strings.Repeat("░", cells-full)
}

func columns(text string) int { return utf8.RuneCountInString(text) }

// timeLeft estimates from the average rate so far how long the rest takes. The rate of the
// last seconds would vary much more: one package takes 100 times as long as another.
// The result is empty as long as there is too little to estimate from.
func timeLeft(done, total int, elapsed time.Duration) string {
	// Few packages are compiled at first, because most depend on them.
	const soonest, smallestShare = 5 * time.Second, 50
	if elapsed < soonest || done <= 0 || done >= total || done*smallestShare < total {
		return ""
	}
	left := time.Duration(float64(elapsed) * float64(total-done) / float64(done))
	if left > 90*time.Second {
		return fmt.Sprintf(", about %d min left", int(left.Round(time.Minute).Minutes()))
	}
	const step = 10 * time.Second
	return fmt.Sprintf(", about %d s left", int(max(left.Round(step), step).Seconds()))
}
