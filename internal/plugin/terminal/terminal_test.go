package terminal

import (
	"bytes"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func newTestScreen(out *bytes.Buffer, columns, rows int) *Screen {
	return &Screen{out: out, isTerminal: true, size: func() (int, int) { return columns, rows }}
}

func TestTerminalLinesAreRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := newTestScreen(&out, 80, 24)
	s.DrawLines([]string{"one", "two"})
	s.DrawLines([]string{"three"})
	s.PrintLine("printed")
	s.DrawLines([]string{"four"})
	s.KeepLines()
	s.DrawLines([]string{"five"})
	const want = "one\ntwo\n\x1b[2A\x1b[Jthree\n\x1b[1A\x1b[Jprinted\nfour\nfive\n"
	require.Equal(t, want, out.String())
}

func TestDrawnLinesFitTheTerminal(t *testing.T) {
	for name, row := range map[string]struct {
		columns, rows int
		lines         []string
		want          string
	}{
		"lines that are too wide":     {6, 24, []string{"transform", "load"}, "trans…\nload\n"},
		"too many lines":              {80, 5, []string{"1", "2", "3", "4", "5"}, "1\n2\n… and 3 more lines\n"},
		"the maximum number of lines": {80, 5, []string{"1", "2", "3"}, "1\n2\n3\n"},
		"a terminal of one row":       {80, 1, []string{"1", "2"}, "… and 2 more lines\n"},
		"a terminal without a size":   {0, 0, []string{"transform", "load"}, "transform\nload\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			newTestScreen(&out, row.columns, row.rows).DrawLines(row.lines)
			require.Equal(t, row.want, out.String())
		})
	}
}

func TestLinesWrappedByANarrowerTerminalAreErased(t *testing.T) {
	var out bytes.Buffer
	columns := 10
	s := &Screen{out: &out, isTerminal: true, size: func() (int, int) { return columns, 24 }}
	s.DrawLines([]string{"0123456789", "01"})
	columns = 4
	s.DrawLines([]string{"x"})
	const want = "0123456789\n01\n\x1b[4A\x1b[Jx\n"
	require.Equal(t, want, out.String())
}

func TestNothingIsDrawnWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, NewStyle(ColorAuto, &out))
	s.DrawLines([]string{"one"})
	s.PrintLine("%s", s.Failure("printed"))
	require.Equal(t, "printed\n", out.String())
}

func TestTruncate(t *testing.T) {
	for name, row := range map[string]struct {
		text    string
		columns int
		want    string
	}{
		"text that fits is unchanged":            {"load", 4, "load"},
		"truncated text ends in an ellipsis":     {"transform", 5, "tran…"},
		"a color takes no column":                {"\x1b[31mload\x1b[0m", 4, "\x1b[31mload\x1b[0m"},
		"a color ends with the truncated text":   {"\x1b[31mtransform\x1b[0m", 5, "\x1b[31mtran…\x1b[0m"},
		"a wide character is not cut in half":    {"数据库", 4, "数…"},
		"a wide character takes two columns":     {"数据库", 6, "数据库"},
		"text is unchanged for an unknown width": {"transform", 0, "transform"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Truncate(row.text, row.columns)
			require.Equal(t, row.want, got)
			require.True(t, row.columns <= 0 || DisplayWidth(got) <= row.columns, "%q takes %d columns of %d", got, DisplayWidth(got), row.columns)
		})
	}
}

func TestShortenMiddle(t *testing.T) {
	for name, row := range map[string]struct {
		text    string
		columns int
		want    string
	}{
		"text that fits is unchanged":         {"load", 4, "load"},
		"the beginning and the end are kept":  {"orders-of-customers-17", 11, "order…rs-17"},
		"a wide character is not cut in half": {"数据库-数据库", 7, "数…据库"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, ShortenMiddle(row.text, row.columns)) })
	}
}

func TestSanitizeReturnsOneHarmlessLine(t *testing.T) {
	for text, want := range map[string]string{
		"no such table":           "no such table",
		"two\nlines\tand a tab\n": "two lines and a tab",
		"\x1b]0;renamed\a":        "\uFFFD]0;renamed\uFFFD",
		"\x1b[2Jcleared":          "\uFFFD[2Jcleared",
		"Größe, 数据, ✔":            "Größe, 数据, ✔",
		"not UTF-8: \xff":         "not UTF-8: \uFFFD",
		"reversed: \u202Eabc":     "reversed: \uFFFDabc",
	} {
		got := Sanitize(text)
		require.True(t, got == want, "Sanitize(%q) = %q, want %q", text, got, want)
	}
}
