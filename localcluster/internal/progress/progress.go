// Package progress shows the progress of long steps: on a terminal with a live line,
// elsewhere with one line before, one after, and one every 10 seconds in between.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	liveInterval  = 120 * time.Millisecond
	plainInterval = 10 * time.Second
)

// Status is what a step is doing.
type Status struct {
	Activity string // such as "compiling packages"
	Done     int
	Total    int // 0 if unknown
}

// Report sets the status of a running step. Any goroutine may call it.
type Report func(Status)

// Printer prints the steps of one command.
type Printer struct {
	out   io.Writer
	live  bool
	width func() int // of the terminal, in columns
}

// New returns a Printer on f, with a live line if f is a terminal.
func New(f *os.File) *Printer {
	terminal := int(f.Fd())
	width := func() int {
		width, _, err := term.GetSize(terminal)
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}
	return &Printer{out: f, live: term.IsTerminal(terminal), width: width}
}

// Plain returns a Printer without a live line.
func Plain(out io.Writer) *Printer {
	return &Printer{out: out}
}

// Printf prints one line between steps.
func (p *Printer) Printf(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Step runs do, shows title and the status that do reports while it runs, then done and
// the duration.
func (p *Printer) Step(title, done string, do func(Report) error) error {
	s := &step{title: title, start: time.Now()}
	stop := p.show(s)
	err := do(s.report)
	stop()
	if err != nil {
		p.Printf("  failed: %s (%s)", title, s.elapsed())
		return err
	}
	p.Printf("  %s (%s)", done, s.elapsed())
	return nil
}

// show displays a step until the returned function is called.
func (p *Printer) show(s *step) (stop func()) {
	if p.live {
		return p.animate(s)
	}
	p.Printf("  %s ...", s.title)
	return every(plainInterval, func() {
		if text := s.plain(); text != "" {
			p.Printf("    %s", text)
		}
	})
}

func (p *Printer) animate(s *step) (stop func()) {
	const rewind = "\r\x1b[K" // to the line's beginning, clearing it
	frame := 0
	draw := func() {
		fmt.Fprint(p.out, rewind, s.live(frame, p.width()))
		frame++
	}
	draw()
	end := every(liveInterval, draw)
	return func() {
		end()
		fmt.Fprint(p.out, rewind)
	}
}

// every calls do at each interval, in another goroutine, until stop returns.
func every(interval time.Duration, do func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticks.C:
				do()
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// step is a running step.
type step struct {
	title string
	start time.Time

	mutex  sync.Mutex
	status Status
	since  time.Time // start of the status's activity
}

func (s *step) report(status Status) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if status.Activity != s.status.Activity {
		s.since = time.Now()
	}
	s.status = status
}

func (s *step) current() (status Status, left string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.status, timeLeft(s.status.Done, s.status.Total, time.Since(s.since))
}

func (s *step) elapsed() time.Duration {
	d := time.Since(s.start)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
