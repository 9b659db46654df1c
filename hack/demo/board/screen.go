package board

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Screen is where the board is drawn: again and again in one place on a terminal, line
// after line anywhere else.
type Screen struct {
	Style

	out   io.Writer
	live  bool
	drawn int // lines of the board that are on the terminal now
}

// NewScreen is a Screen on a file.
func NewScreen(file *os.File) *Screen {
	info, err := file.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &Screen{Style: Style{Colour: live && os.Getenv("NO_COLOR") == ""}, out: file, live: live}
}

// Live reports whether Draw draws in one place.
func (s *Screen) Live() bool { return s.live }

// Draw puts the board's lines in the place of those drawn before.
func (s *Screen) Draw(lines []string) {
	if !s.live {
		return
	}
	s.clear()
	fmt.Fprint(s.out, strings.Join(lines, "\n")+"\n")
	s.drawn = len(lines)
}

// Say writes text above the board.
func (s *Screen) Say(format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// Keep leaves the board where it is: what follows is written below.
func (s *Screen) Keep() { s.drawn = 0 }

func (s *Screen) clear() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}
