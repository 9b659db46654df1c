package logs

import (
	"fmt"
	"io"
	"sync"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// linePrinter writes lines of several logs, each whole and with its label.
type linePrinter struct {
	out, errOut io.Writer
	style       terminal.Style

	mutex      sync.Mutex
	stepColors map[string]terminal.Color // of the steps
}

// labelColors has no red, which is for failures.
var labelColors = []terminal.Color{terminal.Cyan, terminal.Green, terminal.Yellow, terminal.Magenta, terminal.Blue}

// printLine writes a line of a log as it is: its own colours are its author's business.
func (p *linePrinter) printLine(s containerLog, line []byte) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	colour, known := p.stepColors[s.owner]
	if !known {
		colour = labelColors[len(p.stepColors)%len(labelColors)]
		p.stepColors[s.owner] = colour
	}
	_, err := fmt.Fprintf(p.out, "%s %s\n", p.style.Colorize(colour, s.label+" |"), line)
	return err
}

// printNotice says something that is of no log, where it does not get mixed up with one.
func (p *linePrinter) printNotice(text string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.errOut, terminal.Sanitize(text))
}
