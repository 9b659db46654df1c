package render

import (
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

const nameHeader = "NAME"

// Table is a header and one row per object.
type Table struct {
	style      terminal.Style
	header     []string
	rows       [][]string
	namespaces []string // one per row
}

func newTable(style terminal.Style, header ...string) *Table {
	return &Table{style: style, header: header}
}

func (t *Table) addRow(namespace string, cells ...string) {
	t.rows, t.namespaces = append(t.rows, cells), append(t.namespaces, namespace)
}

// AddColumn adds a column with a cell for each row.
func (t *Table) AddColumn(header string, cells []string) {
	t.header = append(t.header, header)
	for i := range t.rows {
		t.rows[i] = append(t.rows[i], cells[i])
	}
}

// Lines renders the table, on request with the namespace of each object as its first column.
func (t *Table) Lines(showNamespaces bool) []string {
	rows := append([][]string{t.header}, t.rows...)
	if showNamespaces {
		for i, namespace := range append([]string{"NAMESPACE"}, t.namespaces...) {
			rows[i] = append([]string{namespace}, rows[i]...)
		}
	}
	return t.style.Table(rows)
}

// minNameWidth is the smallest width to which names are shortened, in columns.
const minNameWidth = 16

// LinesWithin renders the table as Lines does. If it is wider than the number of columns, it shortens names in their middle. Zero
// columns mean any width.
func (t *Table) LinesWithin(columns int, showNamespaces bool) []string {
	lines := t.Lines(showNamespaces)
	excess := widest(lines) - columns
	if columns <= 0 || excess <= 0 {
		return lines
	}
	shortened := *t
	shortened.rows = nil
	names := []string{t.header[0]}
	for _, row := range t.rows {
		names = append(names, row[0])
	}
	width := max(minNameWidth, widest(names)-excess)
	for _, row := range t.rows {
		name := terminal.ShortenMiddle(row[0], width)
		shortened.rows = append(shortened.rows, append([]string{name}, row[1:]...))
	}
	return shortened.Lines(showNamespaces)
}

func widest(lines []string) int {
	width := 0
	for _, line := range lines {
		width = max(width, terminal.DisplayWidth(line))
	}
	return width
}
