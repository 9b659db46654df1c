package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Colour is the parameter of an escape sequence.
type Colour string

// The colours of terminals, and two that are none.
const (
	Red     Colour = "31"
	Green   Colour = "32"
	Yellow  Colour = "33"
	Blue    Colour = "34"
	Magenta Colour = "35"
	Cyan    Colour = "36"
	Dim     Colour = "2"
	bold    Colour = "1"
)

// When there are colours.
const (
	ColourAuto   = "auto"
	ColourAlways = "always"
	ColourNever  = "never"
)

// Style says how text is written.
type Style struct {
	Colour bool
}

// StyleFor is how text is written to out. NO_COLOR is a convention of many programs.
func StyleFor(choice string, out io.Writer) Style {
	if choice == ColourAuto {
		return Style{Colour: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
	}
	return Style{Colour: choice == ColourAlways}
}

func isTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// Paint is the text in that colour; an empty one leaves it as it is.
func (s Style) Paint(colour Colour, text string) string {
	if !s.Colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + reset
}

const reset = "\x1b[0m"

// Bold is text that stands out.
func (s Style) Bold(text string) string { return s.Paint(bold, text) }

// Good is text about a success.
func (s Style) Good(text string) string { return s.Paint(Green, text) }

// Bad is text about a failure.
func (s Style) Bad(text string) string { return s.Paint(Red, text) }
