package jobreport

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// MaxFindings is the maximum number of findings in a report.
const MaxFindings = 500

// Entry is a Job and its finding.
type Entry struct {
	Name    string
	UID     types.UID
	Finding Finding
	Owner   Owner
	// Series is the Job's place among the Jobs that supersede each other.
	Series Series
}

// NewEntry classifies a Job.
func NewEntry(job *batchv1.Job, now time.Time, thresholds Thresholds) Entry {
	return Entry{
		Name: job.Name, UID: job.UID,
		Finding: Classify(job, now, thresholds),
		Owner:   OwnerOf(job),
		Series:  SeriesOf(job),
	}
}

// Aggregator counts Jobs and keeps the most important entries. However many Jobs are added, it keeps at most twice as many
// entries as the report shows, and the entries of failed Jobs that a later Job may supersede.
type Aggregator struct {
	maxEntries int
	total      int32
	series     map[string]*seriesState
	byCategory map[Category]int32
	byFinding  map[findingKind]findingStats
	groups     map[groupKey]*Group
	entries    []Entry
}

// findingKind is the key by which findings are counted.
type findingKind struct {
	category Category
	reason   Reason
}

// findingStats has the number of the findings of a kind, and the earliest time from which a finding counts its age; zero if unknown.
type findingStats struct {
	count  int32
	oldest time.Time
}

// NewAggregator returns an empty Aggregator that keeps maxEntries entries, at most MaxFindings.
func NewAggregator(maxEntries int) *Aggregator {
	return &Aggregator{
		maxEntries: min(max(maxEntries, 0), MaxFindings),
		byCategory: map[Category]int32{},
		byFinding:  map[findingKind]findingStats{},
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

func (a *Aggregator) addFinding(entry Entry) {
	a.byCategory[entry.Finding.Category]++
	if entry.Finding.Reason == "" {
		return
	}
	kind := findingKind{entry.Finding.Category, entry.Finding.Reason}
	stats, since := a.byFinding[kind], entry.Finding.Since
	stats.count++
	if stats.oldest.IsZero() || !since.IsZero() && since.Before(stats.oldest) {
		stats.oldest = since
	}
	a.byFinding[kind] = stats
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

// discardExcess puts severe findings first, then new findings: new trouble is more important than old trouble. UID and name
// make the order deterministic.
func (a *Aggregator) discardExcess() {
	slices.SortFunc(a.entries, func(a, b Entry) int {
		return cmp.Or(
			cmp.Compare(severityRank(a.Finding.Severity), severityRank(b.Finding.Severity)),
			b.Finding.Since.Compare(a.Finding.Since), // the zero time, which means unknown, is last
			cmp.Compare(a.UID, b.UID),
			cmp.Compare(a.Name, b.Name),
		)
	})
	if len(a.entries) > a.maxEntries {
		clear(a.entries[a.maxEntries:])
		a.entries = a.entries[:a.maxEntries]
	}
}

func (a *Aggregator) summary() v1alpha1.JobSummary {
	a.settleSeries()
	summary := v1alpha1.JobSummary{
		Total:      a.total,
		Healthy:    a.byCategory[CategoryHealthy],
		Suspicious: a.byCategory[CategorySuspicious],
		Zombie:     a.byCategory[CategoryZombie],
		Ignored:    a.byCategory[CategoryIgnored],
	}
	for kind, stats := range a.byFinding {
		if summary.ByReason == nil {
			summary.ByReason = map[string]int32{}
		}
		summary.ByReason[string(kind.reason)] += stats.count
	}
	return summary
}

// Count returns the number of Jobs of a category.
func (a *Aggregator) Count(category Category) int32 {
	a.settleSeries()
	return a.byCategory[category]
}

// Findings returns the number of Jobs of a category with this reason, and the earliest time from which such a finding counts its age;
// zero without such a finding, or if no time is known.
func (a *Aggregator) Findings(category Category, reason Reason) (count int32, oldest time.Time) {
	a.settleSeries()
	stats := a.byFinding[findingKind{category, reason}]
	return stats.count, stats.oldest
}

// severityOrder lists the severities from the most to the least important.
var severityOrder = []Severity{SeverityHigh, SeverityMedium, SeverityLow}

func severityRank(severity Severity) int { return slices.Index(severityOrder, severity) }

// seriesState is the state of one series. Jobs are listed by name, not by time, so a failed Job may be listed before the Job
// that supersedes it.
type seriesState struct {
	// latest position of a Job that supersedes earlier failures.
	latest int64
	// superseding is false until such a Job is added.
	superseding bool
	// failed Jobs that no Job has superseded yet.
	failed []Entry
}

func (s *seriesState) isSuperseded(entry *Entry) bool {
	return s.superseding && entry.Series.Position < s.latest
}

// addToSeries records a Job in its series. It returns true if it keeps the entry until all Jobs are known, or has counted it
// because a later Job supersedes its failure.
func (a *Aggregator) addToSeries(entry *Entry) bool {
	place := &entry.Series
	canBeSuperseded := place.Failed && entry.Finding.Reason.IsFailure()
	if place.Key == "" || !place.Supersedes && !canBeSuperseded {
		return false
	}
	state := a.series[place.Key]
	if state == nil {
		state = &seriesState{}
		a.series[place.Key] = state
	}
	if place.Supersedes && (!state.superseding || place.Position > state.latest) {
		state.superseding, state.latest = true, place.Position
		state.failed = slices.DeleteFunc(state.failed, func(failed Entry) bool {
			if !state.isSuperseded(&failed) {
				return false
			}
			a.byCategory[CategoryHealthy]++
			return true
		})
	}
	if canBeSuperseded && state.isSuperseded(entry) {
		a.byCategory[CategoryHealthy]++ // a failure that no longer matters
		return true
	}
	if canBeSuperseded {
		state.failed = append(state.failed, *entry)
	}
	return canBeSuperseded
}

// settleSeries turns the failures that no Job supersedes into findings.
func (a *Aggregator) settleSeries() {
	for key, state := range a.series {
		for i := range state.failed {
			a.addFinding(state.failed[i])
		}
		state.failed = nil
		if !state.superseding {
			delete(a.series, key)
		}
	}
}

// MaxGroups is the maximum number of groups in a report.
const MaxGroups = 20

// groupKey identifies a group. Jobs without an owner are in no group.
type groupKey struct {
	owner Owner
	findingKind
}

// Group counts the findings about Jobs of the same owner with the same category and reason.
type Group struct {
	Owner    Owner
	Category Category
	Severity Severity
	Reason   Reason
	Count    int32
	// Oldest and Newest are the extremes of the findings' times; zero if no time is known.
	Oldest, Newest time.Time
	// Message of the newest finding.
	Message string
}

func (a *Aggregator) addToGroup(entry *Entry) {
	finding := &entry.Finding
	if entry.Owner.IsZero() {
		return
	}
	key := groupKey{entry.Owner, findingKind{finding.Category, finding.Reason}}
	group := a.groups[key]
	if group == nil {
		group = &Group{Owner: entry.Owner, Category: finding.Category, Severity: finding.Severity, Reason: finding.Reason}
		a.groups[key] = group
	}
	group.Count++
	if severityRank(finding.Severity) < severityRank(group.Severity) {
		group.Severity = finding.Severity
	}
	if !finding.Since.IsZero() && (group.Oldest.IsZero() || finding.Since.Before(group.Oldest)) {
		group.Oldest = finding.Since
	}
	// The order in which Jobs are listed must not matter, so equal times are compared by text.
	if c := finding.Since.Compare(group.Newest); group.Message == "" || c > 0 || c == 0 && finding.Message < group.Message {
		group.Newest, group.Message = finding.Since, finding.Message
	}
}

// Groups returns all groups, the most important one first.
func (a *Aggregator) Groups() []Group {
	a.settleSeries()
	groups := make([]Group, 0, len(a.groups))
	for group := range maps.Values(a.groups) {
		groups = append(groups, *group)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(
			cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)),
			b.Newest.Compare(a.Newest),
			cmp.Compare(b.Count, a.Count),
			compareGroupKeys(&a, &b),
		)
	})
	return groups
}

func compareGroupKeys(a, b *Group) int {
	return cmp.Or(
		strings.Compare(a.Owner.Kind, b.Owner.Kind),
		strings.Compare(a.Owner.Name, b.Owner.Name),
		cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Category, b.Category),
	)
}

// statusGroups returns the most important groups with several findings, sorted by owner, so that a report changes little.
func (a *Aggregator) statusGroups() []v1alpha1.JobFindingGroup {
	groups := slices.DeleteFunc(a.Groups(), func(group Group) bool { return group.Count < 2 })
	groups = groups[:min(len(groups), MaxGroups)]
	slices.SortFunc(groups, func(a, b Group) int { return compareGroupKeys(&a, &b) })
	var converted []v1alpha1.JobFindingGroup
	for i := range groups {
		group := &groups[i]
		converted = append(converted, v1alpha1.JobFindingGroup{
			JobFindingClass: findingClass(group.Owner, group.Category, group.Severity, group.Reason),
			Count:           group.Count,
			Oldest:          timeOrNil(group.Oldest),
			Newest:          timeOrNil(group.Newest),
		})
	}
	return converted
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t))
}
