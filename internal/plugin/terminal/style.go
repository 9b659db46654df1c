package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Color is the parameter of an escape sequence.
type Color string

// The colours of terminals, and two that are none.
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

// When there are colours.
const (
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// Style says how text is written.
type Style struct {
	ColorEnabled bool
}

// NewStyle is how text is written to out. NO_COLOR is a convention of many programs.
func NewStyle(choice string, out io.Writer) Style {
	if choice == ColorAuto {
		return Style{ColorEnabled: isTerminalWriter(out) && os.Getenv("NO_COLOR") == ""}
	}
	return Style{ColorEnabled: choice == ColorAlways}
}

func isTerminalWriter(out io.Writer) bool {
	file, isFile := out.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// Colorize is the text in that colour; an empty one leaves it as it is.
func (s Style) Colorize(colour Color, text string) string {
	if !s.ColorEnabled || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + resetSequence
}

const resetSequence = "\x1b[0m"

// Bold is text that stands out.
func (s Style) Bold(text string) string { return s.Colorize(bold, text) }

// Success is text about a success.
func (s Style) Success(text string) string { return s.Colorize(Green, text) }

// Failure is text about a failure.
func (s Style) Failure(text string) string { return s.Colorize(Red, text) }
