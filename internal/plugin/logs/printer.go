package logs

import (
	"fmt"
	"io"
	"sync"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// printer writes lines of several logs, each whole and with its label.
type printer struct {
	out, errOut io.Writer
	style       terminal.Style

	mutex   sync.Mutex
	colours map[string]terminal.Colour // of the steps
}

// palette has no red, which is for failures.
var palette = []terminal.Colour{terminal.Cyan, terminal.Green, terminal.Yellow, terminal.Magenta, terminal.Blue}

// line writes a line of a log as it is: its own colours are its author's business.
func (p *printer) line(s source, line []byte) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	colour, known := p.colours[s.step]
	if !known {
		colour = palette[len(p.colours)%len(palette)]
		p.colours[s.step] = colour
	}
	_, err := fmt.Fprintf(p.out, "%s %s\n", p.style.Paint(colour, s.label+" |"), line)
	return err
}

// note says something that is of no log, where it does not get mixed up with one.
func (p *printer) note(text string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.errOut, terminal.Clean(text))
}
