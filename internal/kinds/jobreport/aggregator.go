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
	// Series are the Job's places among the Jobs that supersede each other.
	Series []Series
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

// CanBeSuperseded reports whether the finding is about a failure that a later Job makes irrelevant.
func (e *Entry) CanBeSuperseded() bool { return len(e.Series) > 0 && e.Finding.Reason.IsFailure() }

// IsSupersededBy reports whether another Job, with these places, makes the failure of this Job irrelevant. The Job is then healthy.
func (e *Entry) IsSupersededBy(others []Series) bool {
	return e.CanBeSuperseded() && slices.ContainsFunc(e.Series, func(own Series) bool {
		return slices.ContainsFunc(others, own.isSupersededBy)
	})
}

// Aggregator counts Jobs and keeps the most important entries. However many Jobs are added, it keeps at most twice as many
// entries as the report shows, and the entries of failed Jobs that a later Job may supersede.
type Aggregator struct {
	maxEntries int
	total      int32
	// latest is the place of the latest Job that supersedes earlier failures, by the key of the series. Jobs are listed by name,
	// not by time, so a failed Job may be listed before the Job that supersedes it.
	latest map[string]Series
	// failed Jobs that a Job which is not listed yet may supersede. Those that are superseded are dropped at maxFailed.
	failed     []Entry
	maxFailed  int
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
		latest:     map[string]Series{},
		maxFailed:  2 * MaxFindings,
	}
}

// Add counts one Job.
func (a *Aggregator) Add(entry Entry) {
	a.total++
	a.AddSuperseding(entry.Series)
	if !entry.CanBeSuperseded() {
		a.addFinding(entry)
		return
	}
	a.failed = append(a.failed, entry)
	if len(a.failed) >= a.maxFailed {
		a.dropSuperseded()
		a.maxFailed = max(a.maxFailed, 2*len(a.failed))
	}
}

// AddSuperseding adds the places of a Job that is not counted, and supersedes others.
func (a *Aggregator) AddSuperseding(series []Series) {
	for _, place := range series {
		if place.Supersedes && !place.isSupersededBy(a.latest[place.Key]) {
			a.latest[place.Key] = place
		}
	}
}

// dropSuperseded counts the superseded failures as healthy.
func (a *Aggregator) dropSuperseded() {
	a.failed = slices.DeleteFunc(a.failed, func(failed Entry) bool {
		isSuperseded := slices.ContainsFunc(failed.Series, func(own Series) bool { return own.isSupersededBy(a.latest[own.Key]) })
		if isSuperseded {
			a.byCategory[CategoryHealthy]++
		}
		return isSuperseded
	})
}

// settle turns the failures that no Job supersedes into findings.
func (a *Aggregator) settle() {
	a.dropSuperseded()
	for _, entry := range a.failed {
		a.addFinding(entry)
	}
	a.failed = nil
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
	a.settle()
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
	a.entries = a.entries[:min(len(a.entries), a.maxEntries)]
}

func (a *Aggregator) summary() v1alpha1.JobSummary {
	a.settle()
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
	a.settle()
	return a.byCategory[category]
}

// Findings returns the number of Jobs of a category with this reason, and the earliest time from which such a finding counts its age;
// zero without such a finding, or if no time is known.
func (a *Aggregator) Findings(category Category, reason Reason) (count int32, oldest time.Time) {
	a.settle()
	stats := a.byFinding[findingKind{category, reason}]
	return stats.count, stats.oldest
}

// severityOrder lists the severities from the most to the least important.
var severityOrder = []Severity{SeverityHigh, SeverityMedium, SeverityLow}

func severityRank(severity Severity) int { return slices.Index(severityOrder, severity) }

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
	a.settle()
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
