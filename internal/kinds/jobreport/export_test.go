package jobreport

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAReportStatesWhetherItsFindingsWereExported(t *testing.T) {
	missing := &Failure{v1alpha1.ReasonCRDMissing, "the kind does not exist"}
	forbidden := &Failure{v1alpha1.ReasonForbidden, "not allowed"}
	status := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	for _, step := range []struct {
		name    string
		failure *Failure
		want    WriteReason
		ready   metav1.ConditionStatus
		events  []decision.Event
	}{
		{"missing", missing, WriteChanged, metav1.ConditionFalse, scanEvent("Warning", "OpenReportsFailed", "CRDMissing: the kind does not exist")},
		{"missing again", missing, WriteUnchanged, metav1.ConditionFalse, nil},
		{"installed but forbidden", forbidden, WriteChanged, metav1.ConditionFalse, scanEvent("Warning", "OpenReportsFailed", "Forbidden: not allowed")},
		{"written", nil, WriteChanged, metav1.ConditionTrue, scanEvent("Normal", "OpenReportsRecovered", "the OpenReports Report has the findings")},
		{"written again", nil, WriteUnchanged, metav1.ConditionTrue, nil},
	} {
		aggregator := NewAggregator(50) // the same scan as before
		aggregator.Add(zombieEntry("a", 0))
		scan := Scan{Jobs: aggregator, StartTime: testTime, Duration: time.Second}
		d := decideOn(status, scan, &ExportResult{Failure: step.failure}, testTime.Add(time.Hour))
		assert.Equal(t, step.name+": write", step.want, d.Write)
		assert.Equal(t, step.name+": events", step.events, d.Events)
		require.True(t, meta.IsStatusConditionPresentAndEqual(d.Status.Conditions, v1alpha1.ConditionOpenReportsReady, step.ready), "%s: %+v", step.name, d)
		assert.Equal(t, step.name+": the findings changed", status.Findings, d.Status.Findings)
		require.True(t, !d.Export, "%s: the export is repeated", step.name)
		status = d.Status
	}
	next := scanEntries(status, testTime.Add(time.Hour), 50, zombieEntry("a", 0))
	require.True(t, cmp.Equal(next.Conditions, status.Conditions), "a scan changes the condition")
	stored := &v1alpha1.JobReport{Status: status}
	without := Decide(Observation{Report: stored, Scan: Scan{Jobs: NewAggregator(50), StartTime: testTime}, Now: testTime}) // the export is disabled
	condition := meta.FindStatusCondition(without.Status.Conditions, v1alpha1.ConditionOpenReportsReady)
	require.True(t, condition == nil && without.Events == nil && !without.Export, "without the export: %+v", without)
}

func TestNothingIsExportedBeforeTheFirstSuccessfulScan(t *testing.T) {
	failed := decideOn(v1alpha1.JobReportStatus{}, Scan{Failure: &Failure{v1alpha1.ReasonTimeout, "slow"}}, nil, testTime)
	scanned := decideOn(v1alpha1.JobReportStatus{}, Scan{Jobs: NewAggregator(1), StartTime: testTime}, nil, testTime)
	first := decideOn(scanned.Status, Scan{Jobs: NewAggregator(1), StartTime: testTime}, &ExportResult{}, testTime)
	require.True(t, !failed.Export && scanned.Export && first.Events == nil, "%+v, %+v, %+v", failed, scanned, first)
}

// The rows of docs/conditions.md for JobReport.
func TestConditionsOfAJobReportAreReadByKstatus(t *testing.T) {
	scanned := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	truncated := scanEntries(v1alpha1.JobReportStatus{}, testTime, 0, zombieEntry("a", 0))
	failedFor := func(reason string) v1alpha1.JobReportStatus {
		return statusAfterFailure(scanned, Failure{reason, "what happened"}, testTime)
	}
	for title, test := range map[string]struct {
		status                      v1alpha1.JobReportStatus
		ready, reconciling, stalled metav1.ConditionStatus
		wantReason                  string
		want                        status.Status
	}{
		"scanned, complete":           {scanned, "True", "False", "False", "Scanned", status.CurrentStatus},
		"scanned, truncated":          {truncated, "True", "False", "False", "Scanned", status.CurrentStatus},
		"the list timed out":          {failedFor(v1alpha1.ReasonTimeout), "False", "True", "False", "Timeout", status.InProgressStatus},
		"the list expired":            {failedFor(v1alpha1.ReasonExpired), "False", "True", "False", "Expired", status.InProgressStatus},
		"the list was interrupted":    {failedFor(v1alpha1.ReasonPartialList), "False", "True", "False", "PartialList", status.InProgressStatus},
		"the list failed":             {failedFor(v1alpha1.ReasonListFailed), "False", "True", "False", "ListFailed", status.InProgressStatus},
		"a permission is missing":     {failedFor(v1alpha1.ReasonForbidden), "False", "False", "True", "Forbidden", status.FailedStatus},
		"the namespace doesn't exist": {failedFor(v1alpha1.ReasonNamespaceNotFound), "False", "False", "True", "NamespaceNotFound", status.FailedStatus},
	} {
		t.Run(title, func(t *testing.T) {
			report := &v1alpha1.JobReport{Status: test.status}
			report.Generation = 1
			kstatustest.AssertKstatus(t, report, test.want)
			for kind, want := range map[string]metav1.ConditionStatus{
				v1alpha1.ConditionReady: test.ready, v1alpha1.ConditionReconciling: test.reconciling, v1alpha1.ConditionStalled: test.stalled,
			} {
				got := meta.FindStatusCondition(test.status.Conditions, kind)
				require.True(t, got.Status == want && got.Reason == test.wantReason && got.ObservedGeneration == 1, "%+v, want %s", got, want)
			}
		})
	}
}

func TestAFailureThatDiffersOnlyInNumbersIsNoChange(t *testing.T) {
	for name, row := range map[string]struct {
		message string
		second  Failure
		want    WriteReason
	}{
		"another port":   {"read 10.0.0.2:51234->10.0.0.1:443: reset", Failure{"ListFailed", "read 10.0.0.2:40022->10.0.0.1:443: reset"}, WriteUnchanged},
		"another time":   {"expired at 2026-03-01T12:00:00Z", Failure{"ListFailed", "expired at 2026-03-01T12:05:00Z"}, WriteUnchanged},
		"another cause":  {"10.0.0.1:443: connection refused", Failure{"ListFailed", "10.0.0.1:443: no route to host"}, WriteChanged},
		"another reason": {"connect: connection refused", Failure{"PartialList", "connect: connection refused"}, WriteChanged},
	} {
		t.Run(name, func(t *testing.T) {
			before := statusAfterFailure(v1alpha1.JobReportStatus{}, Failure{"ListFailed", row.message}, testTime)
			after := statusAfterFailure(before, row.second, testTime.Add(time.Minute))
			assert.Equal(t, "write", row.want, compareStatus("a", &before, &after))
		})
	}
}

func newJobReport(findings ...v1alpha1.JobFinding) *v1alpha1.JobReport {
	r := &v1alpha1.JobReport{}
	r.Namespace, r.Name, r.UID = "team-a", "jobs", "uid-of-the-report"
	r.Status.Findings = findings
	return r
}

func zombieFinding(name string) v1alpha1.JobFinding { return findingOf(zombieEntry(name, 0)) }

const nextNeverStarted = "kubectl get lease kube-controller-manager -n kube-system"

func TestEachFindingBecomesAResult(t *testing.T) {
	suspicious := zombieFinding("b")
	suspicious.Category, suspicious.Severity, suspicious.Cause = "Suspicious", "Medium", "a.example/b"
	suspicious.Owner = &v1alpha1.JobOwner{Kind: "CronJob", Name: "nightly"}
	result := func(name, category, severity, result string, properties map[string]string) openreportsv1alpha1.ReportResult {
		return openreportsv1alpha1.ReportResult{
			Policy: "NeverStarted", Rule: "NeverStarted", Category: category, Description: "never started", Properties: properties,
			Severity: openreportsv1alpha1.ResultSeverity(severity), Result: openreportsv1alpha1.Result(result),
			Timestamp: metav1.Timestamp{Seconds: testTime.Unix()},
			Subjects:  []corev1.ObjectReference{{APIVersion: "batch/v1", Kind: "Job", Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)}},
		}
	}
	want := []openreportsv1alpha1.ReportResult{
		result("a", "Zombie", "high", "fail", map[string]string{"next": nextNeverStarted}),
		result("b", "Suspicious", "medium", "warn", map[string]string{"next": nextNeverStarted, "cause": "a.example/b", "owner": "CronJob/nightly"}),
	}
	report := newJobReport(zombieFinding("a"), suspicious)
	report.Status.Summary = v1alpha1.JobSummary{Total: 6000, Healthy: 700, Suspicious: 300, Zombie: 5000} // most of which are not listed
	got := FromJobReport(report)
	assert.Equal(t, "results", want, got.Results)
	assert.Equal(t, "summary", openreportsv1alpha1.ReportSummary{Pass: 700, Warn: 300, Fail: 5000}, got.Summary)
}

func TestHasSameContentIgnoresIrrelevantDifferences(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*openreportsv1alpha1.Report)
		want   bool
	}{
		"no difference":              {func(*openreportsv1alpha1.Report) {}, true},
		"an added label":             {func(r *openreportsv1alpha1.Report) { r.Labels["team"], r.ResourceVersion = "a", "5" }, true},
		"edited properties":          {func(r *openreportsv1alpha1.Report) { r.Results[0].Properties = map[string]string{} }, false},
		"another count":              {func(r *openreportsv1alpha1.Report) { r.Summary.Pass++ }, false},
		"a missing result":           {func(r *openreportsv1alpha1.Report) { r.Results = r.Results[1:] }, false},
		"another source":             {func(r *openreportsv1alpha1.Report) { r.Source = "kubectl" }, false},
		"another scope":              {func(r *openreportsv1alpha1.Report) { r.Scope = nil }, false},
		"owned by another JobReport": {func(r *openreportsv1alpha1.Report) { r.OwnerReferences[0].UID = "before" }, false},
		"no owner":                   {func(r *openreportsv1alpha1.Report) { r.OwnerReferences = nil }, false},
		"an additional owner": {func(r *openreportsv1alpha1.Report) {
			r.OwnerReferences = append(r.OwnerReferences, r.OwnerReferences[0])
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			next := FromJobReport(newJobReport(zombieFinding("a"), zombieFinding("b")))
			stored := next.DeepCopy()
			row.change(stored)
			assert.Equal(t, "has the same content", row.want, HasSameContent(stored, next))
		})
	}
	foreign := FromJobReport(newJobReport())
	foreign.Labels = map[string]string{"app.kubernetes.io/managed-by": "another"}
	require.True(t, IsManagedByYardmaster(FromJobReport(newJobReport())) && !IsManagedByYardmaster(foreign), "wrong owner")
}

func TestAFindingWithoutATimeIsAppliedWithoutATimestamp(t *testing.T) {
	withoutTime := zombieFinding("a")
	withoutTime.Since = nil
	applied, err := ApplyConfiguration(FromJobReport(newJobReport(withoutTime, zombieFinding("b"))))
	require.NoError(t, err)
	results, _, err := unstructured.NestedSlice(applied.Object, "results")
	require.NoError(t, err)
	for i, want := range []any{nil, map[string]any{"seconds": testTime.Unix(), "nanos": int64(0)}} {
		result := results[i].(map[string]any)
		diff := cmp.Diff(want, result["timestamp"])
		require.True(t, diff == "", "timestamp of result %d (-want +got):\n%s", i, diff)
		require.True(t, result["source"] == nil, "result %d has the source %q", i, result["source"])
	}
}

func TestTheSizeOfAReportIsBounded(t *testing.T) {
	const maxReportBytes = 128 << 10 // a result adds only constant text and the Job's name to its finding
	for name, message := range map[string]string{
		"long messages":                   strings.Repeat("x", MaxMessageBytes),
		"messages that grow when encoded": strings.Repeat("<", MaxMessageBytes),
		"short messages":                  "",
	} {
		t.Run(name, func(t *testing.T) {
			rows := largestEntries(5000)
			for i := range rows {
				rows[i].Finding.Message, rows[i].Finding.Reason = message, ReasonMaxFailedIndexesExceeded
			}
			from := newJobReport()
			from.Status = scanEntries(v1alpha1.JobReportStatus{}, testTime, MaxFindings, rows...)
			applied, err := ApplyConfiguration(FromJobReport(from))
			require.NoError(t, err)
			raw, err := json.Marshal(applied)
			require.NoError(t, err)
			if results := applied.Object["results"].([]any); len(raw) > maxReportBytes || len(results) != len(from.Status.Findings) {
				t.Errorf("%d bytes, want at most %d, and %d results of %d findings", len(raw), maxReportBytes, len(results), len(from.Status.Findings))
			}
		})
	}
}
