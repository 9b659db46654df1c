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

	mutex       sync.Mutex
	ownerColors map[string]terminal.Color
}

// labelColors omits red, which marks failures.
var labelColors = []terminal.Color{terminal.Cyan, terminal.Green, terminal.Yellow, terminal.Magenta, terminal.Blue}

// printLine prints a line unchanged: programs may use colors in their logs.
func (p *linePrinter) printLine(l containerLog, line []byte) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	color, known := p.ownerColors[l.owner]
	if !known {
		color = labelColors[len(p.ownerColors)%len(labelColors)]
		p.ownerColors[l.owner] = color
	}
	_, err := fmt.Fprintf(p.out, "%s %s\n", p.style.Colorize(color, l.label+" |"), line)
	return err
}

// printNotice prints a message of the plugin on standard error, apart from the logs.
func (p *linePrinter) printNotice(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.errOut, terminal.Sanitize(fmt.Sprintf(format, args...)))
}
