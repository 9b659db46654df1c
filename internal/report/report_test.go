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

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stuck is a row of a Job that is a zombie since then.
func stuck(name string, since time.Duration) Row {
	return Row{name, types.UID("uid-" + name), zombie.Finding{
		Category: zombie.Zombie, Severity: zombie.High, Reason: zombie.NeverStarted,
		Since: noon.Add(since), Message: "to be started",
	}}
}

// odd is a row of a Job that is suspicious.
func odd(name string, severity zombie.Severity, since time.Duration) Row {
	row := stuck(name, since)
	row.Finding.Category, row.Finding.Severity, row.Finding.Reason = zombie.Suspicious, severity, zombie.Orphaned
	return row
}

func well(name string) Row { return Row{Name: name, Finding: zombie.Finding{Category: zombie.Healthy}} }

// scan is the status after a scan of these rows.
func scan(before v1alpha1.JobReportStatus, at time.Time, top int, rows ...Row) v1alpha1.JobReportStatus {
	tally := NewTally(top)
	for _, row := range rows {
		tally.Add(row)
	}
	return Scanned(before, tally, at, time.Second)
}

func names(findings []v1alpha1.JobFinding) []string {
	var all []string
	for i := range findings {
		all = append(all, findings[i].Name)
	}
	return all
}

func TestAReportCountsAllAndTellsOfEachJobThatIsNotHealthy(t *testing.T) {
	got := scan(v1alpha1.JobReportStatus{}, noon, 50, well("b"), stuck("c", 0), odd("a", zombie.Low, 0), well("d"))
	finding := func(name string, category v1alpha1.JobCategory, severity v1alpha1.JobSeverity, reason string) v1alpha1.JobFinding {
		return v1alpha1.JobFinding{
			Name: name, UID: types.UID("uid-" + name), Category: category, Severity: severity,
			Reason: reason, Since: new(metav1.NewTime(noon)), Message: "to be started",
		}
	}
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(noon)}
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
		LastScanTime: new(metav1.NewTime(noon)),
		ScanDuration: &metav1.Duration{Duration: time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestWhatMattersMostIsShown(t *testing.T) {
	for name, row := range map[string]struct {
		rows []Row
		want []string
	}{
		"severe before mild":         {[]Row{odd("a", zombie.Low, -time.Hour), stuck("b", 0), odd("c", zombie.Medium, 0)}, []string{"b", "c"}},
		"old before new":             {[]Row{stuck("a", 0), stuck("b", -time.Hour), stuck("c", -time.Minute)}, []string{"b", "c"}},
		"then by uid":                {[]Row{stuck("c", 0), stuck("b", 0), stuck("a", 0)}, []string{"a", "b"}},
		"of unknown age comes last":  {[]Row{ageless("a"), stuck("b", 0), stuck("c", 0)}, []string{"b", "c"}},
		"shown by name, though":      {[]Row{stuck("b", -time.Hour), stuck("a", 0)}, []string{"a", "b"}},
		"healthy Jobs are not shown": {[]Row{well("a"), well("b"), well("c")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := names(scan(v1alpha1.JobReportStatus{}, noon, 2, row.rows...).Findings)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func ageless(name string) Row {
	row := stuck(name, 0)
	row.Finding.Since = time.Time{}
	return row
}

// many are that many zombies, each as big as a finding can be.
func many(n int) []Row {
	rows := make([]Row, 0, n)
	for i := range n {
		row := stuck(fmt.Sprintf("%s-%05d", strings.Repeat("j", 240), i), time.Duration(i%97)*time.Minute)
		row.Finding.Message = strings.Repeat("<&>", 85)
		row.Finding.Cause = strings.Repeat("<", zombie.MaxCause)
		rows = append(rows, row)
	}
	return rows
}

func TestFiveThousandZombiesFitInto64KiB(t *testing.T) {
	for _, top := range []int{0, 1, 50, MaxTop, 100 * MaxTop} {
		status := scan(v1alpha1.JobReportStatus{}, noon, top, many(5000)...)
		status = Failed(status, Failure{v1alpha1.ReasonPartialList, strings.Repeat("<", 1000)}, noon)
		raw, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > MaxStatus {
			t.Errorf("top %d: the status is of %d bytes", top, len(raw))
		}
		if status.Summary.Zombie != 5000 || status.Summary.Total != 5000 || status.Summary.ByReason["NeverStarted"] != 5000 {
			t.Errorf("top %d: counts %+v", top, status.Summary)
		}
		if shown := len(status.Findings); shown > min(top, MaxTop) || int(status.Omitted)+shown != 5000 {
			t.Errorf("top %d: %d shown, %d omitted", top, shown, status.Omitted)
		}
		if !slices.IsSorted(names(status.Findings)) {
			t.Errorf("top %d: not by name", top)
		}
	}
}

func TestATallyStaysSmall(t *testing.T) {
	tally := NewTally(50)
	for _, row := range many(5000) {
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
			rows := many(row.jobs)
			if row.wantReason != "TooBig" {
				for i := range rows {
					rows[i].Finding.Message, rows[i].Finding.Cause = "x", ""
				}
			}
			status := scan(v1alpha1.JobReportStatus{}, noon, row.top, rows...)
			got := about(&status, v1alpha1.ConditionTruncated)
			if got.Status != row.wantStatus || got.Reason != row.wantReason || (row.wantMsg != "" && got.Message != row.wantMsg) {
				t.Errorf("condition %+v", got)
			}
		})
	}
}

func TestTheOrderOfTheJobsDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	rows := many(1000)
	for i := range rows {
		if i%3 == 0 {
			rows[i] = odd(rows[i].Name, zombie.Low, time.Duration(i)*time.Second)
		}
	}
	want := encode(scan(v1alpha1.JobReportStatus{}, noon, 60, rows...))
	for range 20 {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if got := encode(scan(v1alpha1.JobReportStatus{}, noon, 60, rows...)); !bytes.Equal(got, want) {
			t.Fatalf("another report:\n%s", cmp.Diff(string(want), string(got)))
		}
	}
}

func TestOneChangedJobChangesOneFinding(t *testing.T) {
	rows := many(40)
	for i := range rows {
		rows[i].Finding.Cause, rows[i].Finding.Message = "", "to be started"
	}
	before := scan(v1alpha1.JobReportStatus{}, noon, 50, rows...)
	for i := range rows {
		changed := slices.Clone(rows)
		changed[i].Finding.Reason, changed[i].Finding.Message = zombie.NoReadyPods, "another"
		after := scan(before, noon.Add(time.Hour), 50, changed...)
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
	good := scan(v1alpha1.JobReportStatus{}, noon, 50, stuck("a", 0))
	bad := Failed(good, Failure{v1alpha1.ReasonForbidden, "no"}, noon.Add(time.Hour))

	kept := bad
	kept.Conditions = good.Conditions
	if diff := cmp.Diff(good, kept); diff != "" {
		t.Errorf("it changed more than conditions (-good +bad):\n%s", diff)
	}
	ready, failed := about(&bad, v1alpha1.ConditionReportReady), about(&bad, v1alpha1.ConditionScanFailed)
	if ready.Status != "False" || failed.Status != "True" || failed.Reason != "Forbidden" || failed.Message != "no" {
		t.Errorf("conditions %+v, %+v", ready, failed)
	}
	if about(&good, v1alpha1.ConditionScanFailed).Status != "False" {
		t.Error("the status before was changed")
	}
	again := scan(bad, noon.Add(2*time.Hour), 50, stuck("a", 0))
	if about(&again, v1alpha1.ConditionReportReady).Status != "True" || again.ContentHash != good.ContentHash {
		t.Errorf("it does not recover: %+v", again.Conditions)
	}
	first := Failed(v1alpha1.JobReportStatus{}, Failure{v1alpha1.ReasonTimeout, "late"}, noon)
	if got := about(&first, v1alpha1.ConditionReportReady).Message; got != "no scan has succeeded yet" {
		t.Errorf("before the first scan: %q", got)
	}
}

func TestDecide(t *testing.T) {
	good := scan(v1alpha1.JobReportStatus{}, noon, 50, stuck("a", 0))
	bad := Failed(good, Failure{v1alpha1.ReasonForbidden, "no"}, noon)
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          Decision
	}{
		"the first scan":              {v1alpha1.JobReportStatus{}, good, Changed},
		"the first scan of no Jobs":   {v1alpha1.JobReportStatus{}, scan(v1alpha1.JobReportStatus{}, noon, 50), Changed},
		"nothing new":                 {good, scan(good, noon.Add(5*time.Minute), 50, stuck("a", 0)), Unchanged},
		"nothing new for long":        {good, scan(good, noon.Add(67*time.Minute), 50, stuck("a", 0)), Beat},
		"another Job":                 {good, scan(good, noon, 50, stuck("b", 0)), Changed},
		"a Job is gone":               {good, scan(good, noon, 50), Changed},
		"one more Job, healthy":       {good, scan(good, noon, 50, stuck("a", 0), well("b")), Changed},
		"the scan fails":              {good, bad, Changed},
		"it fails again":              {bad, Failed(bad, Failure{v1alpha1.ReasonForbidden, "no"}, noon.Add(day)), Unchanged},
		"it fails for another reason": {bad, Failed(bad, Failure{v1alpha1.ReasonTimeout, "no"}, noon.Add(time.Minute)), Changed},
		"it fails in other words":     {bad, Failed(bad, Failure{v1alpha1.ReasonForbidden, "never"}, noon.Add(time.Minute)), Changed},
		"it recovers":                 {bad, scan(bad, noon, 50, stuck("a", 0)), Changed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide("ns", &row.before, &row.after); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

const day = 24 * time.Hour

func TestHeartbeatsAreSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		name := fmt.Sprintf("team-%d", i)
		beat := heartbeat(name)
		if beat < 54*time.Minute || beat > 66*time.Minute {
			t.Errorf("%s beats every %s", name, beat)
		}
		if heartbeat(name) != beat {
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
	good := scan(v1alpha1.JobReportStatus{}, noon.Add(time.Millisecond), 50, stuck("a", 0), well("b"))
	var stored v1alpha1.JobReportStatus
	if err := json.Unmarshal(encode(good), &stored); err != nil {
		t.Fatal(err)
	}
	again := scan(stored, noon.Add(time.Minute), 50, stuck("a", 0), well("b"))
	if got := Decide("ns", &stored, &again); got != Unchanged {
		t.Errorf("it is %s", got)
	}
}

func TestEventsTellOfConditionsOnly(t *testing.T) {
	none := v1alpha1.JobReportStatus{}
	good := scan(none, noon, 1, stuck("a", 0))
	bad := Failed(good, Failure{v1alpha1.ReasonForbidden, "no"}, noon)
	worse := Failed(bad, Failure{v1alpha1.ReasonTimeout, "late"}, noon)
	long := scan(good, noon, 1, stuck("a", 0), stuck("b", 0))
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          []Event
	}{
		"the first scan":           {none, good, nil},
		"other findings":           {good, scan(good, noon, 1, stuck("z", 0)), nil},
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
