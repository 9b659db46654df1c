package plugin

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/report"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// What --color can be.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

// Escape sequences of terminals.
const (
	plain  = "\x1b[0m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
)

// colourful reports whether the table is to have colours. NO_COLOR is a convention of
// many programs.
func colourful(choice string, out io.Writer) bool {
	if choice != colourAuto {
		return choice == colourAlways
	}
	file, isFile := out.(*os.File)
	return isFile && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}

// printTable prints the Jobs that are not healthy, of each namespace the worst first, and
// then how many there are of each sort.
func printTable(out io.Writer, reports []v1alpha1.JobReport, tallies map[string]*report.Tally, now time.Time, colours bool) error {
	lines := [][]string{{"NAMESPACE", "JOB", "CATEGORY", "REASON", "FOR", "MESSAGE"}}
	total, omitted := v1alpha1.JobSummary{}, 0
	for i := range reports {
		status, rows := &reports[i].Status, tallies[reports[i].Namespace].Rows()
		for _, row := range rows {
			f := &row.Finding
			lines = append(lines, []string{reports[i].Namespace, row.Name, string(f.Category), string(f.Reason), age(f.Since, now), f.Message})
		}
		total.Total += status.Summary.Total
		total.Healthy += status.Summary.Healthy
		total.Suspicious += status.Summary.Suspicious
		total.Zombie += status.Summary.Zombie
		omitted += int(status.Summary.Suspicious+status.Summary.Zombie) - len(rows)
	}
	var text strings.Builder
	if len(lines) > 1 {
		writeColumns(&text, lines, colours)
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "%d Jobs: %d healthy, %d suspicious, %d zombie", total.Total, total.Healthy, total.Suspicious, total.Zombie)
	if omitted > 0 {
		fmt.Fprintf(&text, "; %d are not shown", omitted)
	}
	text.WriteString("\n")
	_, err := io.WriteString(out, text.String())
	return err
}

func age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(since)))
}

// writeColumns pads all columns but the last. The width of a colour is not counted.
func writeColumns(text *strings.Builder, lines [][]string, colours bool) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		for i, cell := range line {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+3)
			if colours {
				cell = coloured(cell)
			}
			text.WriteString(cell)
			if i < len(line)-1 {
				text.WriteString(padding)
			}
		}
		text.WriteString("\n")
	}
}

// coloured is a category in its colour, and everything else as it is.
func coloured(cell string) string {
	switch zombie.Category(cell) {
	case zombie.Zombie:
		return red + cell + plain
	case zombie.Suspicious:
		return yellow + cell + plain
	default:
		return cell
	}
}
