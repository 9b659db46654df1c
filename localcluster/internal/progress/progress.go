// Package progress shows the progress of long steps: on a terminal with a live line,
// elsewhere with one line before and one after.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Printer prints the steps of one command.
type Printer struct {
	out  io.Writer
	live bool
}

// New returns a Printer on f, with a live line if f is a terminal.
func New(f *os.File) *Printer {
	return &Printer{out: f, live: term.IsTerminal(int(f.Fd()))}
}

// Plain returns a Printer without a live line.
func Plain(out io.Writer) *Printer {
	return &Printer{out: out}
}

// Printf prints one line between steps.
func (p *Printer) Printf(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Step runs do, shows title while it runs, then done and the duration.
func (p *Printer) Step(title, done string, do func() error) error {
	start := time.Now()
	stop := p.show(title, start)
	err := do()
	stop()
	if err != nil {
		p.Printf("  failed: %s (%s)", title, elapsed(start))
		return err
	}
	p.Printf("  %s (%s)", done, elapsed(start))
	return nil
}

// show displays a step until the returned function is called.
func (p *Printer) show(title string, start time.Time) (stop func()) {
	if !p.live {
		p.Printf("  %s ...", title)
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.animate(title, start, end)
	}()
	return func() {
		close(end)
		<-ended
	}
}

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

func (p *Printer) animate(title string, start time.Time, end <-chan struct{}) {
	const rewind = "\r\x1b[K" // to the line's beginning, clearing it
	ticks := time.NewTicker(120 * time.Millisecond)
	defer ticks.Stop()
	for frame := 0; ; frame++ {
		fmt.Fprintf(p.out, "%s%s %s %s", rewind, frames[frame%len(frames)], title, elapsed(start))
		select {
		case <-end:
			fmt.Fprint(p.out, rewind)
			return
		case <-ticks.C:
		}
	}
}

func elapsed(start time.Time) time.Duration {
	d := time.Since(start)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
