package report

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
	Owner   zombie.Owner
	// Series is the Job's place among those that supersede each other.
	Series zombie.Series
}

// NewEntry classifies a Job.
func NewEntry(job *batchv1.Job, now time.Time, thresholds zombie.Thresholds) Entry {
	return Entry{
		Name: job.Name, UID: job.UID,
		Finding: zombie.Classify(job, now, thresholds),
		Owner:   zombie.OwnerOf(job),
		Series:  zombie.SeriesOf(job),
	}
}

// Aggregator counts Jobs and keeps the most important entries. However many Jobs are added, it
// keeps at most twice as many entries as the report shows, and those of failed Jobs that a Job
// which is added later may supersede.
type Aggregator struct {
	maxEntries int
	total      int32
	series     map[string]*seriesState
	byCategory map[zombie.Category]int32
	byFinding  map[findingKind]int32
	oldest     map[findingKind]time.Time
	groups     map[groupKey]*Group
	entries    []Entry
}

// findingKind is what findings are counted by.
type findingKind struct {
	category zombie.Category
	reason   zombie.Reason
}

// NewAggregator returns an empty Aggregator that keeps maxEntries entries, at most MaxFindings.
func NewAggregator(maxEntries int) *Aggregator {
	return &Aggregator{
		maxEntries: min(max(maxEntries, 0), MaxFindings),
		byCategory: map[zombie.Category]int32{},
		byFinding:  map[findingKind]int32{},
		oldest:     map[findingKind]time.Time{},
		groups:     map[groupKey]*Group{},
		series:     map[string]*seriesState{},
	}
}

// Add counts one Job.
func (a *Aggregator) Add(entry Entry) {
	a.total++
	if !a.addToSeries(&entry) {
		a.addFinding(entry)
	}
}

// addFinding counts a Job whose category is known.
func (a *Aggregator) addFinding(entry Entry) {
	a.byCategory[entry.Finding.Category]++
	if entry.Finding.Reason == "" {
		return
	}
	kind := findingKind{entry.Finding.Category, entry.Finding.Reason}
	a.byFinding[kind]++
	if since, oldest := entry.Finding.Since, a.oldest[kind]; oldest.IsZero() || !since.IsZero() && since.Before(oldest) {
		a.oldest[kind] = since
	}
	a.addToGroup(&entry)
	a.entries = append(a.entries, entry)
	if len(a.entries) >= 2*a.maxEntries+1 {
		a.discardExcess()
	}
}

// TopEntries returns the most important entries, the most important one first.
func (a *Aggregator) TopEntries() []Entry {
	a.settleSeries()
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
	a.settleSeries()
	summary := v1alpha1.JobSummary{
		Total:      a.total,
		Healthy:    a.byCategory[zombie.CategoryHealthy],
		Suspicious: a.byCategory[zombie.CategorySuspicious],
		Zombie:     a.byCategory[zombie.CategoryZombie],
		Ignored:    a.byCategory[zombie.CategoryIgnored],
	}
	for kind, count := range a.byFinding {
		if summary.ByReason == nil {
			summary.ByReason = map[string]int32{}
		}
		summary.ByReason[string(kind.reason)] += count
	}
	return summary
}

// Count returns the number of Jobs of a category.
func (a *Aggregator) Count(category zombie.Category) int32 {
	a.settleSeries()
	return a.byCategory[category]
}

// CountFindings returns the number of Jobs of a category with this reason.
func (a *Aggregator) CountFindings(category zombie.Category, reason zombie.Reason) int32 {
	a.settleSeries()
	return a.byFinding[findingKind{category, reason}]
}

// compareImportance puts severe findings first, then new ones: new trouble is more important than
// what has been known for long. UID and name make the order deterministic.
func compareImportance(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(severityRank(a.Finding.Severity), severityRank(b.Finding.Severity)),
		b.Finding.Since.Compare(a.Finding.Since), // the zero time, which is unknown, is last
		cmp.Compare(a.UID, b.UID),
		cmp.Compare(a.Name, b.Name),
	)
}

// severityOrder lists the severities from the most to the least important.
var severityOrder = []zombie.Severity{zombie.SeverityHigh, zombie.SeverityMedium, zombie.SeverityLow}

func severityRank(severity zombie.Severity) int { return slices.Index(severityOrder, severity) }

// OldestFinding returns the earliest time from which a finding of a category with this reason counts
// its age; zero without such a finding, or if no time is known.
func (a *Aggregator) OldestFinding(category zombie.Category, reason zombie.Reason) time.Time {
	a.settleSeries()
	return a.oldest[findingKind{category, reason}]
}
