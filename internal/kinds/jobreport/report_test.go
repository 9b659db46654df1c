package jobreport

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// zombieEntry returns an entry of a Job that is a zombie since testTime plus the duration.
func zombieEntry(name string, since time.Duration) Entry {
	return Entry{Name: name, UID: types.UID("uid-" + name), Finding: Finding{
		Category: CategoryZombie, Severity: SeverityHigh, Reason: ReasonNeverStarted,
		Since: testTime.Add(since), Message: "never started",
	}}
}

func suspiciousEntry(name string, severity Severity, since time.Duration) Entry {
	row := zombieEntry(name, since)
	row.Finding.Category, row.Finding.Severity, row.Finding.Reason = CategorySuspicious, severity, ReasonOrphaned
	return row
}

func healthyEntry(name string) Entry {
	return Entry{Name: name, Finding: Finding{Category: CategoryHealthy}}
}

// scanEntries returns the status after a scan of these entries, of which twice as many are kept in memory as are listed.
func scanEntries(before v1alpha1.JobReportStatus, at time.Time, top int, rows ...Entry) v1alpha1.JobReportStatus {
	aggregator := NewAggregator(top)
	for _, row := range rows {
		aggregator.Add(row)
		if len(aggregator.entries) > 2*min(top, MaxFindings) {
			panic("too many entries are kept")
		}
	}
	return decideOn(before, Scan{Jobs: aggregator, StartTime: at, Duration: time.Second}, nil, at).Status
}

func statusAfterFailure(before v1alpha1.JobReportStatus, failure Failure, now time.Time) v1alpha1.JobReportStatus {
	return decideOn(before, Scan{Failure: &failure}, nil, now).Status
}

func decideOn(before v1alpha1.JobReportStatus, scan Scan, export *ExportResult, now time.Time) Decision {
	stored := &v1alpha1.JobReport{Status: before}
	stored.Namespace, stored.Generation = "a", 1
	return Decide(Observation{Report: stored, Scan: scan, ExportEnabled: true, Export: export, Now: now})
}

func scanEvent(kind, reason, message string) []decision.Event {
	return []decision.Event{{Type: kind, Reason: reason, Action: "Scan", Message: message}}
}

func findingNames(findings []v1alpha1.JobFinding) []string {
	var all []string
	for i := range findings {
		all = append(all, findings[i].Name)
	}
	return all
}

func TestAReportCountsAllJobsAndListsThoseThatAreNotHealthy(t *testing.T) {
	got := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, healthyEntry("b"), zombieEntry("c", 0),
		suspiciousEntry("a", SeverityLow, 0), healthyEntry("d"), Entry{Name: "e", Finding: Finding{Category: CategoryIgnored}})
	finding := func(name string, category v1alpha1.JobCategory, severity v1alpha1.JobSeverity, reason string) v1alpha1.JobFinding {
		return v1alpha1.JobFinding{
			Name: name, UID: types.UID("uid-" + name), Since: new(metav1.NewTime(testTime)), Message: "never started",
			JobFindingClass: v1alpha1.JobFindingClass{Category: category, Severity: severity, Reason: reason},
		}
	}
	byReason := map[string]int32{"NeverStarted": 1, "Orphaned": 1}
	want := v1alpha1.JobReportStatus{
		ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: 1, Conditions: got.Conditions},
		Summary:        v1alpha1.JobSummary{Total: 5, Healthy: 2, Suspicious: 1, Zombie: 1, Ignored: 1, ByReason: byReason},
		Findings: []v1alpha1.JobFinding{
			finding("a", v1alpha1.JobSuspicious, v1alpha1.SeverityLow, "Orphaned"), finding("c", v1alpha1.JobZombie, v1alpha1.SeverityHigh, "NeverStarted"),
		},
		NextSteps:    map[string]string{"NeverStarted": nextNeverStarted, "Orphaned": "kubectl delete job a -n a"},
		LastScanTime: new(metav1.NewTime(testTime)),
	}
	assert.Equal(t, "status", want, got)
}

func TestTheMostImportantFindingsAreListed(t *testing.T) {
	withoutAge := zombieEntry("a", 0)
	withoutAge.Finding.Since = time.Time{}
	for name, row := range map[string]struct {
		rows []Entry
		want []string
	}{
		"higher severity first":               {[]Entry{suspiciousEntry("a", SeverityLow, -time.Hour), zombieEntry("b", 0), suspiciousEntry("c", SeverityMedium, 0)}, []string{"b", "c"}},
		"new findings first":                  {[]Entry{zombieEntry("a", 0), zombieEntry("b", -time.Hour), zombieEntry("c", -time.Minute)}, []string{"a", "c"}},
		"equal findings are ordered by UID":   {[]Entry{zombieEntry("c", 0), zombieEntry("b", 0), zombieEntry("a", 0)}, []string{"a", "b"}},
		"unknown age last":                    {[]Entry{withoutAge, zombieEntry("b", 0), zombieEntry("c", 0)}, []string{"b", "c"}},
		"listed findings are ordered by name": {[]Entry{zombieEntry("b", -time.Hour), zombieEntry("a", 0)}, []string{"a", "b"}},
		"healthy Jobs are not listed":         {[]Entry{healthyEntry("a"), healthyEntry("b"), healthyEntry("c")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := findingNames(scanEntries(v1alpha1.JobReportStatus{}, testTime, 2, row.rows...).Findings)
			assert.Equal(t, "findings", row.want, got)
		})
	}
}

// largestEntries returns n zombies, each with the longest possible finding.
func largestEntries(n int) []Entry {
	rows := make([]Entry, 0, n)
	for i := range n {
		row := zombieEntry(fmt.Sprintf("%s-%05d", strings.Repeat("j", 240), i), time.Duration(i%97)*time.Minute)
		row.Finding.Message = strings.Repeat("<&>", 85)
		row.Finding.Cause = strings.Repeat("<", MaxCauseBytes)
		rows = append(rows, row)
	}
	return rows
}

func TestFiveThousandZombiesFitInto64KiB(t *testing.T) {
	for _, top := range []int{0, 1, 50, MaxFindings, 100 * MaxFindings} {
		status := scanEntries(v1alpha1.JobReportStatus{}, testTime, top, largestEntries(5000)...)
		status = statusAfterFailure(status, Failure{v1alpha1.ReasonPartialList, strings.Repeat("<", 1000)}, testTime)
		size := len(encodeJSON(status))
		require.True(t, size <= MaxStatusBytes, "top %d: the status has %d bytes", top, size)
		require.True(t, status.Summary.Zombie == 5000 && status.Summary.Total == 5000 && status.Summary.ByReason["NeverStarted"] == 5000,
			"top %d: counts %+v", top, status.Summary)
		if names := findingNames(status.Findings); len(names) > min(top, MaxFindings) || !slices.IsSorted(names) {
			t.Errorf("top %d: %d listed, want fewer, sorted by name: %q", top, len(names), names)
		}
	}
}

func TestTheConditionTruncatedGivesTheReason(t *testing.T) {
	for name, row := range map[string]struct {
		top, jobs           int
		wantStatus          metav1.ConditionStatus
		wantReason, wantMsg string
	}{
		"all findings are listed":          {50, 50, "False", "AllFindings", "findings lists all Jobs that are not healthy"},
		"more findings than configured":    {50, 51, "True", "TooManyFindings", "findings lists 50 of 51 Jobs that are not healthy"},
		"more findings than fit in 64 KiB": {500, 501, "True", "TooBig", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rows := largestEntries(row.jobs)
			for i := range rows {
				if row.wantReason != "TooBig" {
					rows[i].Finding.Message, rows[i].Finding.Cause = "x", ""
				}
			}
			status := scanEntries(v1alpha1.JobReportStatus{}, testTime, row.top, rows...)
			got := conditionOrEmpty(&status, v1alpha1.ConditionTruncated)
			if got.Status != row.wantStatus || got.Reason != row.wantReason || (row.wantMsg != "" && got.Message != row.wantMsg) {
				t.Errorf("condition %+v", got)
			}
		})
	}
}

func TestHeartbeatsAreSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		name := fmt.Sprintf("team-%d", i)
		beat := heartbeatInterval(name)
		require.True(t, beat >= 54*time.Minute && beat <= 66*time.Minute, "%s has a heartbeat every %s", name, beat)
		require.True(t, heartbeatInterval(name) == beat, "the interval of %s is not constant", name)
		seen[beat] = true
	}
	require.True(t, len(seen) >= 80, "only %d different intervals", len(seen))
}

func TestEventsReportConditionsOnly(t *testing.T) {
	none := v1alpha1.JobReportStatus{}
	good := scanEntries(none, testTime, 1, zombieEntry("a", 0))
	failed := statusAfterFailure(good, Failure{v1alpha1.ReasonForbidden, "no"}, testTime)
	failedOtherwise := statusAfterFailure(failed, Failure{v1alpha1.ReasonTimeout, "late"}, testTime)
	truncated := scanEntries(good, testTime, 1, zombieEntry("a", 0), zombieEntry("b", 0))
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          []decision.Event
	}{
		"first scan":                {none, good, nil},
		"other findings":            {good, scanEntries(good, testTime, 1, zombieEntry("z", 0)), nil},
		"scan fails":                {good, failed, scanEvent("Warning", "ScanFailed", "Forbidden: no")},
		"scan fails again":          {failed, failed, nil},
		"other failure":             {failed, failedOtherwise, scanEvent("Warning", "ScanFailed", "Timeout: late")},
		"scan succeeds again":       {failed, good, scanEvent("Normal", "ScanRecovered", "all Jobs were scanned")},
		"findings are truncated":    {good, truncated, scanEvent("Normal", "Truncated", "findings lists 1 of 2 Jobs that are not healthy")},
		"findings are all included": {truncated, good, scanEvent("Normal", "NotTruncated", "findings lists all Jobs that are not healthy")},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "events", row.want, transitionEvents(&row.before, &row.after))
		})
	}
}
