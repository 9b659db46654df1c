package terminal

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// columnGap separates columns, as in kubectl's tables.
const columnGap = "   "

// Sanitize returns text from an untrusted source as one harmless line. The last message of a container, for example, could otherwise
// move the cursor or rename the window.
func Sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, strings.TrimSpace(text))
}

// DisplayWidth returns the number of terminal columns that the text occupies, without escape sequences.
func DisplayWidth(text string) int { return ansi.StringWidth(text) }

// Truncate shortens the text to a number of columns and marks the end with an ellipsis. Escape sequences after the end are kept, so
// that a color does not leak. With zero columns it returns the text unchanged. A line that the terminal wraps would break the next
// redraw.
func Truncate(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	return ansi.Truncate(text, columns, "…")
}

// ShortenMiddle shortens the text, which has no escape sequences, to a number of columns, and puts an ellipsis in its middle: names
// of similar objects often differ only at the end.
func ShortenMiddle(text string, columns int) string {
	width := DisplayWidth(text)
	if width <= columns {
		return text
	}
	end := (columns - 1) / 2
	return ansi.Truncate(text, columns-1-end, "") + "…" + ansi.TruncateLeft(text, width-end, "")
}

// AlignColumns pads the cells of rows so that they form columns. Lines have no trailing spaces.
func AlignColumns(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		widths = append(widths, make([]int, max(0, len(row)-len(widths)))...)
		for i, cell := range row {
			widths[i] = max(widths[i], DisplayWidth(cell))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[j]-DisplayWidth(cell)) + columnGap)
			}
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// Table aligns rows. The first row is the header.
func (s Style) Table(rows [][]string) []string {
	lines := AlignColumns(rows)
	lines[0] = s.Colorize(Dim, lines[0])
	return lines
}
