package terminal

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Screen redraws lines in place on a terminal, and otherwise prints line after line.
type Screen struct {
	Style

	out        io.Writer
	isTerminal bool
	size       func() (columns, rows int)
	// drawn are the widths of the lines on the terminal. If the terminal has become narrower since, a line can occupy several rows.
	drawn []int
}

// NewScreen returns a Screen that writes to out.
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

// Columns returns the width of the terminal; 0 if unknown.
func (s *Screen) Columns() int {
	columns, _ := s.size()
	return columns
}

// maxLines returns how many lines can be drawn; 0 if unknown. One row is for the cursor, and one row remains above: some terminals
// keep a screen that is erased from its first row in their history, at each redraw.
func (s *Screen) maxLines() int {
	const reserved = 2
	_, rows := s.size()
	if rows == 0 {
		return 0
	}
	return max(1, rows-reserved)
}

// Fits reports whether the lines can be drawn without omitting any.
func (s *Screen) Fits(lines []string) bool {
	limit := s.maxLines()
	return limit == 0 || len(lines) <= limit
}

// IsTerminal reports whether DrawLines has an effect.
func (s *Screen) IsTerminal() bool { return s.isTerminal }

// DrawLines replaces the lines drawn before. It truncates lines that are too wide and omits lines that do not fit: only visible lines
// can be replaced later.
func (s *Screen) DrawLines(lines []string) {
	if !s.isTerminal {
		return
	}
	columns, _ := s.size()
	var text strings.Builder
	text.WriteString(s.eraseSequence(columns))
	if limit := s.maxLines(); limit > 0 && len(lines) > limit {
		shown := lines[:limit-1]
		lines = append(slices.Clone(shown), fmt.Sprintf("… and %d more lines", len(lines)-len(shown)))
	}
	for _, line := range lines {
		line = Truncate(line, columns)
		s.drawn = append(s.drawn, DisplayWidth(line))
		text.WriteString(line + "\n")
	}
	fmt.Fprint(s.out, text.String()) // in one write, to avoid flickering
}

// PrintLine erases the drawn lines and prints a line that stays.
func (s *Screen) PrintLine(format string, args ...any) {
	columns, _ := s.size()
	fmt.Fprintf(s.out, s.eraseSequence(columns)+format+"\n", args...)
}

// KeepLines makes the drawn lines permanent. Later output goes below them.
func (s *Screen) KeepLines() { s.drawn = nil }

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

// WriteLines writes each line with a newline.
func WriteLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(append(lines, ""), "\n"))
	return err
}
