package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/internal/zombie"
)

// MaxFindings is the most findings that a report can hold.
const MaxFindings = 500

// Entry is what is kept of a Job that is not healthy.
type Entry struct {
	Name    string
	UID     types.UID
	Finding zombie.Finding
}

// Aggregator counts Jobs, and keeps the rows that matter most. It never holds more than twice
// as many as it will show, however many Jobs there are.
type Aggregator struct {
	top      int
	total    int32
	category map[zombie.Category]int32
	reason   map[zombie.Reason]int32
	rows     []Entry
}

// NewAggregator is an empty tally that keeps so many rows, at most MaxTop.
func NewAggregator(top int) *Aggregator {
	return &Aggregator{
		top:      min(max(top, 0), MaxFindings),
		category: map[zombie.Category]int32{},
		reason:   map[zombie.Reason]int32{},
	}
}

// Add counts one Job.
func (t *Aggregator) Add(row Entry) {
	t.total++
	t.category[row.Finding.Category]++
	if row.Finding.Category == zombie.CategoryHealthy {
		return
	}
	t.reason[row.Finding.Reason]++
	t.rows = append(t.rows, row)
	if len(t.rows) >= 2*t.top+1 {
		t.discardExcess()
	}
}

// TopEntries are the rows that matter most, the first of them most of all.
func (t *Aggregator) TopEntries() []Entry {
	t.discardExcess()
	return slices.Clone(t.rows)
}

// discardExcess leaves the rows that will be shown if nothing worse comes.
func (t *Aggregator) discardExcess() {
	slices.SortFunc(t.rows, compareImportance)
	if len(t.rows) > t.top {
		clear(t.rows[t.top:])
		t.rows = t.rows[:t.top]
	}
}

// compareImportance puts severe findings first, then old ones. The rest only keeps the order
// the same each time.
func compareImportance(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(severityRank(a.Finding.Severity), severityRank(b.Finding.Severity)),
		compareAge(a.Finding.Since, b.Finding.Since),
		strings.Compare(string(a.UID), string(b.UID)),
		strings.Compare(a.Name, b.Name),
	)
}

// severityOrder in the order in which they matter.
var severityOrder = []zombie.Severity{zombie.SeverityHigh, zombie.SeverityMedium, zombie.SeverityLow}

func severityRank(severity zombie.Severity) int { return slices.Index(severityOrder, severity) }

// compareAge puts the older first, and what is of unknown age last.
func compareAge(a, b time.Time) int {
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
