package terminal

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

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
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, ShortenMiddle(row.text, row.columns))
		})
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
		if got := Sanitize(text); got != want {
			t.Errorf("Sanitize(%q) = %q, want %q", text, got, want)
		}
	}
}
