package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// Unknown is shown for an unknown value. It never means 0.
const Unknown = "–"

// maxTextBytes limits a text of several lines, such as a payload.
const maxTextBytes = 64 << 10

// cleanLine returns text of users as one line without control and format characters.
func cleanLine(text string) string { return terminal.Sanitize(text) }

// cleanText is cleanLine for text of several lines. It shortens long text and marks the end.
func cleanText(text string) string {
	rest := 0
	if len(text) > maxTextBytes {
		rest, text = len(text)-maxTextBytes, strings.ToValidUTF8(text[:maxTextBytes], "")
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = cleanSpaces(strings.TrimRight(line, " \t\r"))
	}
	text = strings.Join(lines, "\n")
	if rest > 0 {
		text += fmt.Sprintf("\n… %d more bytes", rest)
	}
	return text
}

// cleanSpaces is cleanLine, but keeps the indentation.
func cleanSpaces(line string) string {
	trimmed := strings.TrimLeft(line, " \t")
	return strings.ReplaceAll(line[:len(line)-len(trimmed)], "\t", "    ") + cleanLine(trimmed)
}

// CleanLogLine returns a line of a log for a page, without the colors of terminals.
func CleanLogLine(line string) string {
	return cleanSpaces(strings.TrimRight(ansi.Strip(line), " \t\r"))
}

func count[N int32 | int64](n *N) string {
	if n == nil {
		return Unknown
	}
	return strconv.FormatInt(int64(*n), 10)
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// ordinal is the number of a run or attempt. 0 means that it has not started.
func ordinal(n int32) string {
	if n == 0 {
		return Unknown
	}
	return number(n)
}

func duration(d *metav1.Duration) string {
	if d == nil {
		return Unknown
	}
	return render.FormatRounded(d.Duration)
}

func rate(r *resource.Quantity) string {
	if r == nil {
		return Unknown
	}
	return render.FormatDecimal(r.AsApproximateFloat64()) + "/s"
}

func dollars(cost *v1alpha1.Number) string {
	if cost == nil {
		return Unknown
	}
	return "$" + cleanLine(string(*cost))
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

func orUnknown(text string) string { return cmp.Or(text, Unknown) }
