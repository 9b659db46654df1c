package render

import (
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// nameHeader is the header above names.
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
	lines := terminal.AlignColumns(rows)
	lines[0] = t.style.Colorize(terminal.Dim, lines[0])
	return lines
}
