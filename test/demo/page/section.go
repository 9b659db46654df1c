package page

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// The states of a section.
type state int

const (
	running state = iota
	succeeded
	failed
)

// detail is how much of the sections is shown.
type detail int

const (
	allDetails detail = iota
	detailsOfRunning
	boardsOfRunning
)

// Section is the part of the page that one scenario writes.
type Section struct {
	page    *Page
	title   string
	place   string
	started time.Time
	state   state
	board   []string
	action  []string
}

// NewSection adds a section. Its place says where in the cluster the scenario runs.
func (p *Page) NewSection(title, place string) *Section {
	s := &Section{page: p, title: title, place: place, started: time.Now()}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.sections = append(p.sections, s)
	return s
}

// Draw replaces the lines of the section.
func (s *Section) Draw(lines []string) {
	s.page.mutex.Lock()
	defer s.page.mutex.Unlock()
	s.board = lines
	s.page.draw()
}

// Log prints a line with the time since the section's beginning, on a verbose page only.
func (s *Section) Log(format string, args ...any) {
	if s.page.Verbose {
		s.printLine(fmt.Sprintf(format, args...))
	}
}

// Act shows what the demo does, and the command with which a user would do the same.
func (s *Section) Act(description, command string) {
	if !s.page.isLive() {
		s.printLine(description)
		s.printLine("$ " + command)
		return
	}
	s.page.mutex.Lock()
	defer s.page.mutex.Unlock()
	s.action = []string{description, "$ " + command}
	s.page.draw()
}

// End shows that the scenario has succeeded, or has failed with err.
func (s *Section) End(err error) {
	s.page.mutex.Lock()
	defer s.page.mutex.Unlock()
	s.state = succeeded
	if err != nil {
		s.state = failed
	}
	s.page.draw()
}

func (s *Section) printLine(text string) {
	s.page.PrintLine("  %4s  %-13s  %s", roundSeconds(time.Since(s.started)), s.title, text)
}

// lines returns the section as it is shown. The caller has locked the page.
func (s *Section) lines(shown detail) []string {
	mark := map[state]string{running: "…", succeeded: s.page.Success("✔"), failed: s.page.Failure("✘")}[s.state]
	title := fmt.Sprintf("%s %s   %s", mark, s.page.Bold(s.title), s.page.Colorize(terminal.Dim, s.place))
	if shown != allDetails && s.state != running {
		return []string{title}
	}
	lines := []string{"", title}
	for _, line := range s.board {
		lines = append(lines, "  "+line)
	}
	if shown == boardsOfRunning {
		return lines[1:]
	}
	for _, line := range s.action {
		lines = append(lines, "  "+s.page.Colorize(terminal.Dim, line))
	}
	return lines
}
