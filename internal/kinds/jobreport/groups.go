package jobreport

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

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
			Owner:    v1alpha1.JobOwner{Kind: group.Owner.Kind, Name: group.Owner.Name},
			Category: v1alpha1.JobCategory(group.Category),
			Severity: v1alpha1.JobSeverity(group.Severity),
			Reason:   string(group.Reason),
			Count:    group.Count,
			Oldest:   timeOrNil(group.Oldest),
			Newest:   timeOrNil(group.Newest),
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
