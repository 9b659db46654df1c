package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// columnGap stands between two columns, as kubectl has it.
const columnGap = "   "

// Sanitize is text from elsewhere as one harmless line: what a container left as its last
// message could otherwise move the cursor or rename the window.
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

// DisplayWidth is how many columns the text takes. Escape sequences take none.
func DisplayWidth(text string) int {
	columns := 0
	for text != "" {
		_, size, wide := next(text)
		columns += wide
		text = text[size:]
	}
	return columns
}

// Truncate is the text as far as it fits into so many columns, with a sign of the cut. A line
// that the terminal wraps would spoil what is drawn over it next.
func Truncate(text string, columns int) string {
	if columns <= 0 || DisplayWidth(text) <= columns {
		return text
	}
	const sign = "…"
	var kept strings.Builder
	coloured := false
	for room := columns - 1; text != ""; {
		escape, size, wide := next(text)
		if room -= wide; room < 0 {
			break
		}
		coloured = coloured || escape
		kept.WriteString(text[:size])
		text = text[size:]
	}
	kept.WriteString(sign)
	if coloured {
		kept.WriteString(resetSequence)
	}
	return kept.String()
}

// next tells of the text's first character or escape sequence how long it is and how many
// columns it takes.
func next(text string) (escape bool, size, columns int) {
	if strings.HasPrefix(text, "\x1b[") {
		if end := strings.IndexByte(text, 'm'); end >= 0 {
			return true, end + 1, 0
		}
	}
	r, size := utf8.DecodeRuneInString(text)
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return false, size, 2
	default:
		return false, size, 1
	}
}

// AlignColumns are the rows with their cells one below the other. The last cell of a row is not
// padded.
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
