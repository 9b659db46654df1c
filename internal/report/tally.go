package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/internal/zombie"
)

// MaxTop is the most findings that a report can hold.
const MaxTop = 500

// Row is what is kept of a Job that is not healthy.
type Row struct {
	Name    string
	UID     types.UID
	Finding zombie.Finding
}

// Tally counts Jobs, and keeps the rows that matter most. It never holds more than twice
// as many as it will show, however many Jobs there are.
type Tally struct {
	top      int
	total    int32
	category map[zombie.Category]int32
	reason   map[zombie.Reason]int32
	rows     []Row
}

// NewTally is an empty tally that keeps so many rows, at most MaxTop.
func NewTally(top int) *Tally {
	return &Tally{
		top:      min(max(top, 0), MaxTop),
		category: map[zombie.Category]int32{},
		reason:   map[zombie.Reason]int32{},
	}
}

// Add counts one Job.
func (t *Tally) Add(row Row) {
	t.total++
	t.category[row.Finding.Category]++
	if row.Finding.Category == zombie.Healthy {
		return
	}
	t.reason[row.Finding.Reason]++
	t.rows = append(t.rows, row)
	if len(t.rows) >= 2*t.top+1 {
		t.cut()
	}
}

// Rows are the rows that matter most, the first of them most of all.
func (t *Tally) Rows() []Row {
	t.cut()
	return slices.Clone(t.rows)
}

// cut leaves the rows that will be shown if nothing worse comes.
func (t *Tally) cut() {
	slices.SortFunc(t.rows, byImportance)
	if len(t.rows) > t.top {
		clear(t.rows[t.top:])
		t.rows = t.rows[:t.top]
	}
}

// byImportance puts severe findings first, then old ones. The rest only keeps the order
// the same each time.
func byImportance(a, b Row) int {
	return cmp.Or(
		cmp.Compare(rank(a.Finding.Severity), rank(b.Finding.Severity)),
		byAge(a.Finding.Since, b.Finding.Since),
		strings.Compare(string(a.UID), string(b.UID)),
		strings.Compare(a.Name, b.Name),
	)
}

// severities in the order in which they matter.
var severities = []zombie.Severity{zombie.High, zombie.Medium, zombie.Low}

func rank(severity zombie.Severity) int { return slices.Index(severities, severity) }

// byAge puts the older first, and what is of unknown age last.
func byAge(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	default:
		return a.Compare(b)
	}
}
