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
)

var scanTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// zombieEntry returns an entry of a Job that is a zombie since scanTime plus the duration.
func zombieEntry(name string, since time.Duration) Entry {
	return Entry{Name: name, UID: types.UID("uid-" + name), Finding: Finding{
		Category: CategoryZombie, Severity: SeverityHigh, Reason: ReasonNeverStarted,
		Since: scanTime.Add(since), Message: "never started",
	}}
}

// suspiciousEntry returns an entry of a suspicious Job.
func suspiciousEntry(name string, severity Severity, since time.Duration) Entry {
	row := zombieEntry(name, since)
	row.Finding.Category, row.Finding.Severity, row.Finding.Reason = CategorySuspicious, severity, ReasonOrphaned
	return row
}

func healthyEntry(name string) Entry {
	return Entry{Name: name, Finding: Finding{Category: CategoryHealthy}}
}

// scanEntries returns the status after a scan of these entries.
func scanEntries(before v1alpha1.JobReportStatus, at time.Time, top int, rows ...Entry) v1alpha1.JobReportStatus {
	aggregator := NewAggregator(top)
	for _, row := range rows {
		aggregator.Add(row)
	}
	return decideOn(before, Scan{Jobs: aggregator, StartTime: at, Duration: time.Second}, nil, at).Status
}

// statusAfterFailure returns the status after a failed scan.
func statusAfterFailure(before v1alpha1.JobReportStatus, failure Failure, now time.Time) v1alpha1.JobReportStatus {
	return decideOn(before, Scan{Failure: &failure}, nil, now).Status
}

func decideOn(before v1alpha1.JobReportStatus, scan Scan, export *ExportResult, now time.Time) Decision {
	stored := &v1alpha1.JobReport{Status: before}
	stored.Namespace, stored.Generation = "a", 1
	return Decide(Observation{Report: stored, Scan: scan, ExportEnabled: true, Export: export, Now: now})
}

func findingNames(findings []v1alpha1.JobFinding) []string {
	var all []string
	for i := range findings {
		all = append(all, findings[i].Name)
	}
	return all
}

func TestAReportCountsAllJobsAndListsThoseThatAreNotHealthy(t *testing.T) {
	got := scanEntries(v1alpha1.JobReportStatus{}, scanTime, 50, healthyEntry("b"), zombieEntry("c", 0), suspiciousEntry("a", SeverityLow, 0), healthyEntry("d"))
	finding := func(name string, category v1alpha1.JobCategory, severity v1alpha1.JobSeverity, reason string) v1alpha1.JobFinding {
		return v1alpha1.JobFinding{
			Name: name, UID: types.UID("uid-" + name),
			JobFindingClass: v1alpha1.JobFindingClass{Category: category, Severity: severity, Reason: reason},
			Since:           new(metav1.NewTime(scanTime)), Message: "never started",
		}
	}
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(scanTime)}
	}
	summary := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		summary := condition(kind, status, "Scanned", "all Jobs were scanned")
		summary.ObservedGeneration = 1
		return summary
	}
	want := v1alpha1.JobReportStatus{
		ObservedStatus: v1alpha1.ObservedStatus{
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{
				condition("Truncated", metav1.ConditionFalse, "AllFindings", "findings lists all Jobs that are not healthy"),
				summary("Ready", metav1.ConditionTrue),
				summary("Reconciling", metav1.ConditionFalse),
				summary("Stalled", metav1.ConditionFalse),
			},
		},
		Summary: v1alpha1.JobSummary{
			Total: 4, Healthy: 2, Suspicious: 1, Zombie: 1,
			ByReason: map[string]int32{"NeverStarted": 1, "Orphaned": 1},
		},
		Findings: []v1alpha1.JobFinding{
			finding("a", v1alpha1.JobSuspicious, v1alpha1.SeverityLow, "Orphaned"),
			finding("c", v1alpha1.JobZombie, v1alpha1.SeverityHigh, "NeverStarted"),
		},
		NextSteps: map[string]string{
			"NeverStarted": "kubectl get lease kube-controller-manager -n kube-system", "Orphaned": "kubectl delete job a -n a",
		},
		LastScanTime: new(metav1.NewTime(scanTime)),
	}
	assert.Equal(t, "status", want, got)
}

func TestTheMostImportantFindingsAreListed(t *testing.T) {
	for name, row := range map[string]struct {
		rows []Entry
		want []string
	}{
		"higher severity first":               {[]Entry{suspiciousEntry("a", SeverityLow, -time.Hour), zombieEntry("b", 0), suspiciousEntry("c", SeverityMedium, 0)}, []string{"b", "c"}},
		"new findings first":                  {[]Entry{zombieEntry("a", 0), zombieEntry("b", -time.Hour), zombieEntry("c", -time.Minute)}, []string{"a", "c"}},
		"equal findings are ordered by UID":   {[]Entry{zombieEntry("c", 0), zombieEntry("b", 0), zombieEntry("a", 0)}, []string{"a", "b"}},
		"unknown age last":                    {[]Entry{entryWithoutAge("a"), zombieEntry("b", 0), zombieEntry("c", 0)}, []string{"b", "c"}},
		"listed findings are ordered by name": {[]Entry{zombieEntry("b", -time.Hour), zombieEntry("a", 0)}, []string{"a", "b"}},
		"healthy Jobs are not listed":         {[]Entry{healthyEntry("a"), healthyEntry("b"), healthyEntry("c")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := findingNames(scanEntries(v1alpha1.JobReportStatus{}, scanTime, 2, row.rows...).Findings)
			assert.Equal(t, "findings", row.want, got)
		})
	}
}

func entryWithoutAge(name string) Entry {
	row := zombieEntry(name, 0)
	row.Finding.Since = time.Time{}
	return row
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
		status := scanEntries(v1alpha1.JobReportStatus{}, scanTime, top, largestEntries(5000)...)
		status = statusAfterFailure(status, Failure{v1alpha1.ReasonPartialList, strings.Repeat("<", 1000)}, scanTime)
		if size := len(encodeJSON(status)); size > MaxStatusBytes {
			t.Errorf("top %d: the status has %d bytes", top, size)
		}
		if status.Summary.Zombie != 5000 || status.Summary.Total != 5000 || status.Summary.ByReason["NeverStarted"] != 5000 {
			t.Errorf("top %d: counts %+v", top, status.Summary)
		}
		if shown := len(status.Findings); shown > min(top, MaxFindings) {
			t.Errorf("top %d: %d listed", top, shown)
		}
		if !slices.IsSorted(findingNames(status.Findings)) {
			t.Errorf("top %d: not sorted by name", top)
		}
	}
}

func TestAnAggregatorKeepsAtMostTwiceTheListedEntries(t *testing.T) {
	aggregator := NewAggregator(50)
	for _, row := range largestEntries(5000) {
		aggregator.Add(row)
		if len(aggregator.entries) > 100 {
			t.Fatalf("it keeps %d entries", len(aggregator.entries))
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
			status := scanEntries(v1alpha1.JobReportStatus{}, scanTime, row.top, rows...)
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
		if beat < 54*time.Minute || beat > 66*time.Minute {
			t.Errorf("%s has a heartbeat every %s", name, beat)
		}
		if heartbeatInterval(name) != beat {
			t.Errorf("the interval of %s is not constant", name)
		}
		seen[beat] = true
	}
	if len(seen) < 80 {
		t.Errorf("only %d different intervals", len(seen))
	}
}

func TestEventsReportConditionsOnly(t *testing.T) {
	none := v1alpha1.JobReportStatus{}
	good := scanEntries(none, scanTime, 1, zombieEntry("a", 0))
	failed := statusAfterFailure(good, Failure{v1alpha1.ReasonForbidden, "no"}, scanTime)
	failedOtherwise := statusAfterFailure(failed, Failure{v1alpha1.ReasonTimeout, "late"}, scanTime)
	truncated := scanEntries(good, scanTime, 1, zombieEntry("a", 0), zombieEntry("b", 0))
	event := func(kind, reason, message string) []decision.Event {
		return []decision.Event{{Type: kind, Reason: reason, Action: "Scan", Message: message}}
	}
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          []decision.Event
	}{
		"first scan":                {none, good, nil},
		"other findings":            {good, scanEntries(good, scanTime, 1, zombieEntry("z", 0)), nil},
		"scan fails":                {good, failed, event("Warning", "ScanFailed", "Forbidden: no")},
		"scan fails again":          {failed, failed, nil},
		"other failure":             {failed, failedOtherwise, event("Warning", "ScanFailed", "Timeout: late")},
		"scan succeeds again":       {failed, good, event("Normal", "ScanRecovered", "all Jobs were scanned")},
		"findings are truncated":    {good, truncated, event("Normal", "Truncated", "findings lists 1 of 2 Jobs that are not healthy")},
		"findings are all included": {truncated, good, event("Normal", "NotTruncated", "findings lists all Jobs that are not healthy")},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "events", row.want, transitionEvents(&row.before, &row.after))
		})
	}
}
