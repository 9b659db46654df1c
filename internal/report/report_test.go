package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// zombieEntry is a row of a Job that is a zombie since then.
func zombieEntry(name string, since time.Duration) Entry {
	return Entry{name, types.UID("uid-" + name), zombie.Finding{
		Category: zombie.CategoryZombie, Severity: zombie.SeverityHigh, Reason: zombie.ReasonNeverStarted,
		Since: testTime.Add(since), Message: "never started",
	}}
}

// suspiciousEntry is a row of a Job that is suspicious.
func suspiciousEntry(name string, severity zombie.Severity, since time.Duration) Entry {
	row := zombieEntry(name, since)
	row.Finding.Category, row.Finding.Severity, row.Finding.Reason = zombie.CategorySuspicious, severity, zombie.ReasonOrphaned
	return row
}

func healthyEntry(name string) Entry {
	return Entry{Name: name, Finding: zombie.Finding{Category: zombie.CategoryHealthy}}
}

// scanEntries is the status after a scan of these rows.
func scanEntries(before v1alpha1.JobReportStatus, at time.Time, top int, rows ...Entry) v1alpha1.JobReportStatus {
	tally := NewAggregator(top)
	for _, row := range rows {
		tally.Add(row)
	}
	return StatusAfterScan(before, tally, at, time.Second)
}

func findingNames(findings []v1alpha1.JobFinding) []string {
	var all []string
	for i := range findings {
		all = append(all, findings[i].Name)
	}
	return all
}

func TestAReportCountsAllAndTellsOfEachJobThatIsNotHealthy(t *testing.T) {
	got := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, healthyEntry("b"), zombieEntry("c", 0), suspiciousEntry("a", zombie.SeverityLow, 0), healthyEntry("d"))
	finding := func(name string, category v1alpha1.JobCategory, severity v1alpha1.JobSeverity, reason string) v1alpha1.JobFinding {
		return v1alpha1.JobFinding{
			Name: name, UID: types.UID("uid-" + name), Category: category, Severity: severity,
			Reason: reason, Since: new(metav1.NewTime(testTime)), Message: "never started",
		}
	}
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(testTime)}
	}
	want := v1alpha1.JobReportStatus{
		Conditions: []metav1.Condition{
			condition("ReportReady", metav1.ConditionTrue, "Scanned", "all Jobs were scanned"),
			condition("ScanFailed", metav1.ConditionFalse, "Scanned", "all Jobs were scanned"),
			condition("Truncated", metav1.ConditionFalse, "AllFindings", "findings has all Jobs that are not healthy"),
		},
		Summary: v1alpha1.JobSummary{
			Total: 4, Healthy: 2, Suspicious: 1, Zombie: 1,
			ByReason: map[string]int32{"NeverStarted": 1, "Orphaned": 1},
		},
		Findings: []v1alpha1.JobFinding{
			finding("a", v1alpha1.JobSuspicious, v1alpha1.SeverityLow, "Orphaned"),
			finding("c", v1alpha1.JobZombie, v1alpha1.SeverityHigh, "NeverStarted"),
		},
		ContentHash:  got.ContentHash,
		LastScanTime: new(metav1.NewTime(testTime)),
		ScanDuration: &metav1.Duration{Duration: time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestWhatMattersMostIsShown(t *testing.T) {
	for name, row := range map[string]struct {
		rows []Entry
		want []string
	}{
		"severe before mild":         {[]Entry{suspiciousEntry("a", zombie.SeverityLow, -time.Hour), zombieEntry("b", 0), suspiciousEntry("c", zombie.SeverityMedium, 0)}, []string{"b", "c"}},
		"old before new":             {[]Entry{zombieEntry("a", 0), zombieEntry("b", -time.Hour), zombieEntry("c", -time.Minute)}, []string{"b", "c"}},
		"then by uid":                {[]Entry{zombieEntry("c", 0), zombieEntry("b", 0), zombieEntry("a", 0)}, []string{"a", "b"}},
		"of unknown age comes last":  {[]Entry{entryWithoutAge("a"), zombieEntry("b", 0), zombieEntry("c", 0)}, []string{"b", "c"}},
		"shown by name, though":      {[]Entry{zombieEntry("b", -time.Hour), zombieEntry("a", 0)}, []string{"a", "b"}},
		"healthy Jobs are not shown": {[]Entry{healthyEntry("a"), healthyEntry("b"), healthyEntry("c")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := findingNames(scanEntries(v1alpha1.JobReportStatus{}, testTime, 2, row.rows...).Findings)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func entryWithoutAge(name string) Entry {
	row := zombieEntry(name, 0)
	row.Finding.Since = time.Time{}
	return row
}

// largestEntries are that many zombies, each as big as a finding can be.
func largestEntries(n int) []Entry {
	rows := make([]Entry, 0, n)
	for i := range n {
		row := zombieEntry(fmt.Sprintf("%s-%05d", strings.Repeat("j", 240), i), time.Duration(i%97)*time.Minute)
		row.Finding.Message = strings.Repeat("<&>", 85)
		row.Finding.Cause = strings.Repeat("<", zombie.MaxCauseBytes)
		rows = append(rows, row)
	}
	return rows
}

func TestFiveThousandZombiesFitInto64KiB(t *testing.T) {
	for _, top := range []int{0, 1, 50, MaxFindings, 100 * MaxFindings} {
		status := scanEntries(v1alpha1.JobReportStatus{}, testTime, top, largestEntries(5000)...)
		status = StatusAfterFailure(status, ScanFailure{v1alpha1.ReasonPartialList, strings.Repeat("<", 1000)}, testTime)
		raw, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > MaxStatusBytes {
			t.Errorf("top %d: the status is of %d bytes", top, len(raw))
		}
		if status.Summary.Zombie != 5000 || status.Summary.Total != 5000 || status.Summary.ByReason["NeverStarted"] != 5000 {
			t.Errorf("top %d: counts %+v", top, status.Summary)
		}
		if shown := len(status.Findings); shown > min(top, MaxFindings) || int(status.Omitted)+shown != 5000 {
			t.Errorf("top %d: %d shown, %d omitted", top, shown, status.Omitted)
		}
		if !slices.IsSorted(findingNames(status.Findings)) {
			t.Errorf("top %d: not by name", top)
		}
	}
}

func TestATallyStaysSmall(t *testing.T) {
	tally := NewAggregator(50)
	for _, row := range largestEntries(5000) {
		tally.Add(row)
		if len(tally.rows) > 100 {
			t.Fatalf("it holds %d rows", len(tally.rows))
		}
	}
}

func TestTruncatedSaysWhy(t *testing.T) {
	for name, row := range map[string]struct {
		top, jobs           int
		wantStatus          metav1.ConditionStatus
		wantReason, wantMsg string
	}{
		"all are shown":           {50, 50, "False", "AllFindings", "findings has all Jobs that are not healthy"},
		"more than asked for":     {50, 51, "True", "TooManyFindings", "findings has 50 of 51 Jobs"},
		"more than there is room": {500, 501, "True", "TooBig", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rows := largestEntries(row.jobs)
			if row.wantReason != "TooBig" {
				for i := range rows {
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

func TestTheOrderOfTheJobsDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	rows := largestEntries(1000)
	for i := range rows {
		if i%3 == 0 {
			rows[i] = suspiciousEntry(rows[i].Name, zombie.SeverityLow, time.Duration(i)*time.Second)
		}
	}
	want := encodeJSON(scanEntries(v1alpha1.JobReportStatus{}, testTime, 60, rows...))
	for range 20 {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if got := encodeJSON(scanEntries(v1alpha1.JobReportStatus{}, testTime, 60, rows...)); !bytes.Equal(got, want) {
			t.Fatalf("another report:\n%s", cmp.Diff(string(want), string(got)))
		}
	}
}

func TestOneChangedJobChangesOneFinding(t *testing.T) {
	rows := largestEntries(40)
	for i := range rows {
		rows[i].Finding.Cause, rows[i].Finding.Message = "", "never started"
	}
	before := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, rows...)
	for i := range rows {
		changed := slices.Clone(rows)
		changed[i].Finding.Reason, changed[i].Finding.Message = zombie.ReasonNoReadyPods, "another"
		after := scanEntries(before, testTime.Add(time.Hour), 50, changed...)
		differ := 0
		for j := range before.Findings {
			if !equality.Semantic.DeepEqual(before.Findings[j], after.Findings[j]) {
				differ++
			}
		}
		if differ != 1 || len(before.Findings) != len(after.Findings) {
			t.Errorf("%d findings have changed, and there are %d", differ, len(after.Findings))
		}
		if after.ContentHash == before.ContentHash {
			t.Error("the hash is the same")
		}
	}
}

func TestAFailedScanKeepsWhatWasFound(t *testing.T) {
	good := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	bad := StatusAfterFailure(good, ScanFailure{v1alpha1.ReasonForbidden, "no"}, testTime.Add(time.Hour))

	kept := bad
	kept.Conditions = good.Conditions
	if diff := cmp.Diff(good, kept); diff != "" {
		t.Errorf("it changed more than conditions (-good +bad):\n%s", diff)
	}
	ready, failed := conditionOrEmpty(&bad, v1alpha1.ConditionReportReady), conditionOrEmpty(&bad, v1alpha1.ConditionScanFailed)
	if ready.Status != "False" || failed.Status != "True" || failed.Reason != "Forbidden" || failed.Message != "no" {
		t.Errorf("conditions %+v, %+v", ready, failed)
	}
	if conditionOrEmpty(&good, v1alpha1.ConditionScanFailed).Status != "False" {
		t.Error("the status before was changed")
	}
	again := scanEntries(bad, testTime.Add(2*time.Hour), 50, zombieEntry("a", 0))
	if conditionOrEmpty(&again, v1alpha1.ConditionReportReady).Status != "True" || again.ContentHash != good.ContentHash {
		t.Errorf("it does not recover: %+v", again.Conditions)
	}
	first := StatusAfterFailure(v1alpha1.JobReportStatus{}, ScanFailure{v1alpha1.ReasonTimeout, "late"}, testTime)
	if got := conditionOrEmpty(&first, v1alpha1.ConditionReportReady).Message; got != "no scan has succeeded yet" {
		t.Errorf("before the first scan: %q", got)
	}
}

func TestDecide(t *testing.T) {
	good := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	bad := StatusAfterFailure(good, ScanFailure{v1alpha1.ReasonForbidden, "no"}, testTime)
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          WriteDecision
	}{
		"the first scan":              {v1alpha1.JobReportStatus{}, good, DecisionChanged},
		"the first scan of no Jobs":   {v1alpha1.JobReportStatus{}, scanEntries(v1alpha1.JobReportStatus{}, testTime, 50), DecisionChanged},
		"nothing new":                 {good, scanEntries(good, testTime.Add(5*time.Minute), 50, zombieEntry("a", 0)), DecisionUnchanged},
		"nothing new for long":        {good, scanEntries(good, testTime.Add(67*time.Minute), 50, zombieEntry("a", 0)), DecisionHeartbeat},
		"another Job":                 {good, scanEntries(good, testTime, 50, zombieEntry("b", 0)), DecisionChanged},
		"a Job is gone":               {good, scanEntries(good, testTime, 50), DecisionChanged},
		"one more Job, healthy":       {good, scanEntries(good, testTime, 50, zombieEntry("a", 0), healthyEntry("b")), DecisionChanged},
		"the scan fails":              {good, bad, DecisionChanged},
		"it fails again":              {bad, StatusAfterFailure(bad, ScanFailure{v1alpha1.ReasonForbidden, "no"}, testTime.Add(oneDay)), DecisionUnchanged},
		"it fails for another reason": {bad, StatusAfterFailure(bad, ScanFailure{v1alpha1.ReasonTimeout, "no"}, testTime.Add(time.Minute)), DecisionChanged},
		"it fails in other words":     {bad, StatusAfterFailure(bad, ScanFailure{v1alpha1.ReasonForbidden, "never"}, testTime.Add(time.Minute)), DecisionChanged},
		"it recovers":                 {bad, scanEntries(bad, testTime, 50, zombieEntry("a", 0)), DecisionChanged},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CompareStatus("ns", &row.before, &row.after); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

const oneDay = 24 * time.Hour

func TestHeartbeatsAreSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		name := fmt.Sprintf("team-%d", i)
		beat := heartbeatInterval(name)
		if beat < 54*time.Minute || beat > 66*time.Minute {
			t.Errorf("%s beats every %s", name, beat)
		}
		if heartbeatInterval(name) != beat {
			t.Errorf("%s beats now so, now so", name)
		}
		seen[beat] = true
	}
	if len(seen) < 80 {
		t.Errorf("only %d different beats", len(seen))
	}
}

// A status goes through the API server, and comes back the same as far as matters.
func TestAStoredStatusIsUnchanged(t *testing.T) {
	good := scanEntries(v1alpha1.JobReportStatus{}, testTime.Add(time.Millisecond), 50, zombieEntry("a", 0), healthyEntry("b"))
	var stored v1alpha1.JobReportStatus
	if err := json.Unmarshal(encodeJSON(good), &stored); err != nil {
		t.Fatal(err)
	}
	again := scanEntries(stored, testTime.Add(time.Minute), 50, zombieEntry("a", 0), healthyEntry("b"))
	if got := CompareStatus("ns", &stored, &again); got != DecisionUnchanged {
		t.Errorf("it is %s", got)
	}
}

func TestEventsTellOfConditionsOnly(t *testing.T) {
	none := v1alpha1.JobReportStatus{}
	good := scanEntries(none, testTime, 1, zombieEntry("a", 0))
	bad := StatusAfterFailure(good, ScanFailure{v1alpha1.ReasonForbidden, "no"}, testTime)
	worse := StatusAfterFailure(bad, ScanFailure{v1alpha1.ReasonTimeout, "late"}, testTime)
	long := scanEntries(good, testTime, 1, zombieEntry("a", 0), zombieEntry("b", 0))
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          []Event
	}{
		"the first scan":           {none, good, nil},
		"other findings":           {good, scanEntries(good, testTime, 1, zombieEntry("z", 0)), nil},
		"the scan fails":           {good, bad, []Event{{"Warning", "ScanFailed", "Forbidden: no"}}},
		"it fails again":           {bad, bad, nil},
		"it fails otherwise":       {bad, worse, []Event{{"Warning", "ScanFailed", "Timeout: late"}}},
		"it recovers":              {bad, good, []Event{{"Normal", "ScanRecovered", "all Jobs were scanned"}}},
		"there is not room enough": {good, long, []Event{{"Normal", "Truncated", "findings has 1 of 2 Jobs"}}},
		"there is room again":      {long, good, []Event{{"Normal", "NotTruncated", "findings has all Jobs that are not healthy"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Events(&row.before, &row.after)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
