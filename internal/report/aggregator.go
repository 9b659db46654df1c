package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// MaxFindings is the maximum number of findings in a report.
const MaxFindings = 500

// Entry is a Job and its finding.
type Entry struct {
	Name    string
	UID     types.UID
	Finding zombie.Finding
}

// Aggregator counts Jobs and keeps the most important entries. However many Jobs are added, it
// keeps at most twice as many entries as the report shows.
type Aggregator struct {
	maxEntries int
	total      int32
	byCategory map[zombie.Category]int32
	byReason   map[string]int32
	entries    []Entry
}

// NewAggregator returns an empty Aggregator that keeps maxEntries entries, at most MaxFindings.
func NewAggregator(maxEntries int) *Aggregator {
	return &Aggregator{
		maxEntries: min(max(maxEntries, 0), MaxFindings),
		byCategory: map[zombie.Category]int32{},
		byReason:   map[string]int32{},
	}
}

// Add counts one Job.
func (a *Aggregator) Add(entry Entry) {
	a.total++
	a.byCategory[entry.Finding.Category]++
	if entry.Finding.Category == zombie.CategoryHealthy {
		return
	}
	a.byReason[string(entry.Finding.Reason)]++
	a.entries = append(a.entries, entry)
	if len(a.entries) >= 2*a.maxEntries+1 {
		a.discardExcess()
	}
}

// TopEntries returns the most important entries, the most important one first.
func (a *Aggregator) TopEntries() []Entry {
	a.discardExcess()
	return slices.Clone(a.entries)
}

func (a *Aggregator) discardExcess() {
	slices.SortFunc(a.entries, compareImportance)
	if len(a.entries) > a.maxEntries {
		clear(a.entries[a.maxEntries:])
		a.entries = a.entries[:a.maxEntries]
	}
}

func (a *Aggregator) summary() v1alpha1.JobSummary {
	summary := v1alpha1.JobSummary{
		Total:      a.total,
		Healthy:    a.byCategory[zombie.CategoryHealthy],
		Suspicious: a.byCategory[zombie.CategorySuspicious],
		Zombie:     a.byCategory[zombie.CategoryZombie],
	}
	if len(a.byReason) > 0 {
		summary.ByReason = maps.Clone(a.byReason)
	}
	return summary
}

// compareImportance puts severe findings first, then old ones. UID and name make the order
// deterministic.
func compareImportance(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(severityRank(a.Finding.Severity), severityRank(b.Finding.Severity)),
		compareAge(a.Finding.Since, b.Finding.Since),
		cmp.Compare(a.UID, b.UID),
		cmp.Compare(a.Name, b.Name),
	)
}

// severityOrder lists the severities from the most to the least important.
var severityOrder = []zombie.Severity{zombie.SeverityHigh, zombie.SeverityMedium, zombie.SeverityLow}

func severityRank(severity zombie.Severity) int { return slices.Index(severityOrder, severity) }

// compareAge puts the older first, and unknown ages last.
func compareAge(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return -a.Compare(b) // the zero time is the earliest
	}
	return a.Compare(b)
}
