// Package page shows the progress of the demo on one page: steps one after another, then sections that change at the same time.
package page

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// The intervals between two signs of progress: live on a terminal, and as lines anywhere else.
const (
	liveInterval = time.Second
	lineInterval = 10 * time.Second
)

// Page is the output of one demo. Its methods may be called concurrently.
type Page struct {
	terminal.Style
	// Verbose prints all details as lines, and draws nothing.
	Verbose bool

	mutex    sync.Mutex
	screen   *terminal.Screen
	sections []*Section
}

// New returns an empty page.
func New(screen *terminal.Screen, verbose bool) *Page {
	return &Page{Style: screen.Style, Verbose: verbose, screen: screen}
}

// PrintLine prints a line that stays.
func (p *Page) PrintLine(format string, args ...any) {
	p.update(func() { p.screen.PrintLine(format, args...) })
}

// update makes a change, and redraws the sections.
func (p *Page) update(change func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	change()
	p.draw()
}

// PrintTitle prints the title of what follows.
func (p *Page) PrintTitle(title string) { p.PrintLine("\n%s", p.Bold(title)) }

// isLive reports whether the page redraws what changes.
func (p *Page) isLive() bool { return p.screen.IsTerminal() && !p.Verbose }

// Step shows the title while do runs, and then that it is done, with the time that it took.
func (p *Page) Step(title, done string, do func() error) error {
	started := time.Now()
	stop := p.repeat(func() {
		line := fmt.Sprintf("  … %s (%s)", title, roundSeconds(time.Since(started)))
		if p.isLive() {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.screen.DrawLines([]string{line})
			return
		}
		p.PrintLine("%s", line)
	})
	err := do()
	stop()
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	p.PrintLine("  %s %s (%s)", p.Success("✔"), done, time.Since(started).Round(time.Second/10))
	return nil
}

// ShowSections shows the sections, with the time that they have taken, until the returned function is called. That function prints them in full.
func (p *Page) ShowSections() (finish func()) {
	started := time.Now()
	stop := p.repeat(func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if p.isLive() {
			p.draw()
			return
		}
		if running := p.runningTitles(); running != "" {
			p.screen.PrintLine("  … %s: still running (%s)", running, roundSeconds(time.Since(started)))
		}
	})
	return func() {
		stop()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		for _, line := range p.lines(allDetails) {
			p.screen.PrintLine("%s", line)
		}
		p.sections = nil
	}
}

// repeat calls show at each interval until the returned function is called.
func (p *Page) repeat(show func()) (stop func()) {
	interval := lineInterval
	if p.isLive() {
		interval = liveInterval
	}
	ticker := time.NewTicker(interval)
	end := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				show()
			}
		}
	})
	return func() {
		ticker.Stop()
		close(end)
		showing.Wait()
	}
}

func roundSeconds(d time.Duration) time.Duration { return d.Round(time.Second) }

func (p *Page) runningTitles() string {
	var titles []string
	for _, s := range p.sections {
		if s.state == running {
			titles = append(titles, s.title)
		}
	}
	return strings.Join(titles, ", ")
}

// draw redraws the sections. The caller has locked the page.
func (p *Page) draw() {
	if p.isLive() && len(p.sections) > 0 {
		p.screen.DrawLines(p.linesThatFit())
	}
}

// linesThatFit omits what is least interesting on a small terminal: the details of sections that have ended, then those of actions.
func (p *Page) linesThatFit() []string {
	for _, shown := range []detail{allDetails, detailsOfRunning, boardsOfRunning} {
		if lines := p.lines(shown); p.screen.Fits(lines) {
			return lines
		}
	}
	return p.lines(boardsOfRunning)
}

func (p *Page) lines(shown detail) []string {
	var lines []string
	for _, s := range p.sections {
		lines = append(lines, s.lines(shown)...)
	}
	return lines
}

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
	page          *Page
	title, place  string
	started       time.Time
	state         state
	board, action []string
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
func (s *Section) Draw(lines []string) { s.page.update(func() { s.board = lines }) }

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
	s.page.update(func() { s.action = []string{description, "$ " + command} })
}

// End shows that the scenario has succeeded, or has failed with err.
func (s *Section) End(err error) {
	s.page.update(func() {
		s.state = succeeded
		if err != nil {
			s.state = failed
		}
	})
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
