package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen is where something is drawn: again and again in one place on a terminal, line
// after line anywhere else.
type Screen struct {
	Style

	out        io.Writer
	isTerminal bool
	size       func() (columns, rows int)
	// drawn are the widths of the lines that are on the terminal now. Made narrower since,
	// it shows a wide one on several rows.
	drawn []int
}

// NewScreen is a Screen on out.
func NewScreen(out io.Writer, style Style) *Screen {
	s := &Screen{Style: style, out: out, isTerminal: isTerminalWriter(out), size: func() (int, int) { return 0, 0 }}
	if file, isFile := out.(*os.File); isFile {
		s.size = func() (int, int) {
			columns, rows, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 0, 0
			}
			return columns, rows
		}
	}
	return s
}

// IsTerminal reports whether Draw draws in one place.
func (s *Screen) IsTerminal() bool { return s.isTerminal }

// DrawLines puts lines in the place of those drawn before. What is too wide or too much for the
// terminal is cut: only what is on it can be drawn over.
func (s *Screen) DrawLines(lines []string) {
	if !s.isTerminal {
		return
	}
	columns, rows := s.size()
	var text strings.Builder
	text.WriteString(s.eraseSequence(columns))
	for _, line := range limitRows(lines, rows-1) {
		line = Truncate(line, columns)
		s.drawn = append(s.drawn, DisplayWidth(line))
		text.WriteString(line + "\n")
	}
	fmt.Fprint(s.out, text.String()) // at once, so that it does not flicker
}

// limitRows leaves out lines at the end that there are no rows for, and says how many.
func limitRows(lines []string, rows int) []string {
	if rows <= 0 || len(lines) <= rows {
		return lines
	}
	shown := lines[: rows-1 : rows-1]
	return append(shown, fmt.Sprintf("… and %d lines more", len(lines)-len(shown)))
}

// PrintLine writes text above what is drawn.
func (s *Screen) PrintLine(format string, args ...any) {
	columns, _ := s.size()
	fmt.Fprintf(s.out, s.eraseSequence(columns)+format+"\n", args...)
}

// KeepLines leaves what is drawn where it is: what follows is written below.
func (s *Screen) KeepLines() { s.drawn = nil }

// eraseSequence is what takes the drawn lines off a terminal of so many columns.
func (s *Screen) eraseSequence(columns int) string {
	rows := 0
	for _, drawn := range s.drawn {
		rows++
		if columns > 0 {
			rows += max(0, drawn-1) / columns
		}
	}
	s.drawn = nil
	if rows == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\x1b[J", rows)
}

// WriteLines writes lines one below the other.
func WriteLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(append(lines, ""), "\n"))
	return err
}
