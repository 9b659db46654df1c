package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Color is the parameter of an escape sequence for the look of text.
type Color string

// The terminal colors, and two other attributes of text.
const (
	Red     Color = "31"
	Green   Color = "32"
	Yellow  Color = "33"
	Blue    Color = "34"
	Magenta Color = "35"
	Cyan    Color = "36"
	Dim     Color = "2"
	bold    Color = "1"
)

// The modes of NewStyle.
const (
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// Style decides whether text has colors.
type Style struct {
	ColorEnabled bool
}

// NewStyle returns the style of a mode. ColorAuto enables colors on a terminal, unless the environment variable NO_COLOR is set
// (https://no-color.org).
func NewStyle(mode string, out io.Writer) Style {
	if mode == ColorAuto {
		return Style{ColorEnabled: isTerminalWriter(out) && os.Getenv("NO_COLOR") == ""}
	}
	return Style{ColorEnabled: mode == ColorAlways}
}

func isTerminalWriter(out io.Writer) bool {
	file, isFile := out.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// Colorize returns the text in the color. An empty color leaves it unchanged.
func (s Style) Colorize(color Color, text string) string {
	if !s.ColorEnabled || color == "" || text == "" {
		return text
	}
	return "\x1b[" + string(color) + "m" + text + resetSequence
}

const resetSequence = "\x1b[0m"

// Bold returns the text in bold.
func (s Style) Bold(text string) string { return s.Colorize(bold, text) }

// Success returns the text in the color of successes.
func (s Style) Success(text string) string { return s.Colorize(Green, text) }

// Failure returns the text in the color of failures.
func (s Style) Failure(text string) string { return s.Colorize(Red, text) }
