package logs

import (
	"fmt"
	"io"
	"sync"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// linePrinter prints the lines of several logs, each with its label. It never mixes two lines.
type linePrinter struct {
	out, errOut io.Writer
	style       terminal.Style
	// render returns the lines to print for a line; nil prints each line unchanged.
	render func(line []byte) []string

	mutex       sync.Mutex
	ownerColors map[string]terminal.Color
}

// labelColors omits red, which marks failures.
var labelColors = []terminal.Color{terminal.Cyan, terminal.Green, terminal.Yellow, terminal.Magenta, terminal.Blue}

// printLine prints a line unchanged, unless it is rendered: programs may use colors in their logs.
func (p *linePrinter) printLine(l containerLog, line []byte) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	color, known := p.ownerColors[l.owner]
	if !known {
		color = labelColors[len(p.ownerColors)%len(labelColors)]
		p.ownerColors[l.owner] = color
	}
	label := p.style.Colorize(color, l.label+" |")
	if p.render == nil {
		_, err := fmt.Fprintf(p.out, "%s %s\n", label, line)
		return err
	}
	for _, rendered := range p.render(line) {
		if _, err := fmt.Fprintf(p.out, "%s %s\n", label, rendered); err != nil {
			return err
		}
	}
	return nil
}

// printNotice prints a message of the plugin on standard error, apart from the logs.
func (p *linePrinter) printNotice(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.errOut, terminal.Sanitize(fmt.Sprintf(format, args...)))
}
