package jobreport

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

// decideAfterExport decides on the same scan as before, after the Report was written or not.
func decideAfterExport(before v1alpha1.JobReportStatus, failure *Failure, now time.Time) Decision {
	aggregator := NewAggregator(50)
	aggregator.Add(zombieEntry("a", 0))
	return decideOn(before, Scan{Jobs: aggregator, StartTime: testTime, Duration: time.Second}, &ExportResult{Failure: failure}, now)
}

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
		d := decideAfterExport(status, step.failure, testTime.Add(time.Hour))
		assert.Equal(t, step.name+": write", step.want, d.Write)
		assert.Equal(t, step.name+": events", step.events, d.Events)
		require.True(t, meta.IsStatusConditionPresentAndEqual(d.Status.Conditions, v1alpha1.ConditionOpenReportsReady, step.ready),
			"%s: %+v", step.name, d.Status.Conditions)
		assert.Equal(t, step.name+": the findings changed", status.Findings, d.Status.Findings)
		require.True(t, !d.Export, "%s: the export is repeated", step.name)
		status = d.Status
	}
	next := scanEntries(status, testTime.Add(time.Hour), 50, zombieEntry("a", 0))
	require.True(t, cmp.Equal(next.Conditions, status.Conditions), "a scan changes the condition")
	stored := &v1alpha1.JobReport{Status: status}
	without := Decide(Observation{Report: stored, Scan: Scan{Jobs: NewAggregator(50), StartTime: testTime}, Now: testTime}) // the export is disabled
	if meta.FindStatusCondition(without.Status.Conditions, v1alpha1.ConditionOpenReportsReady) != nil || without.Events != nil || without.Export {
		t.Errorf("without the export: %+v", without)
	}
}

func TestNothingIsExportedBeforeTheFirstSuccessfulScan(t *testing.T) {
	failed := decideOn(v1alpha1.JobReportStatus{}, Scan{Failure: &Failure{v1alpha1.ReasonTimeout, "slow"}}, nil, testTime)
	scanned := decideOn(v1alpha1.JobReportStatus{}, Scan{Jobs: NewAggregator(1), StartTime: testTime}, nil, testTime)
	first := decideOn(scanned.Status, Scan{Jobs: NewAggregator(1), StartTime: testTime}, &ExportResult{}, testTime)
	require.True(t, !failed.Export && scanned.Export && first.Events == nil,
		"export after a failure %t, after a scan %t, events of the first export: %v", failed.Export, scanned.Export, first.Events)
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
				require.True(t, got.Status == want && got.Reason == test.wantReason && got.ObservedGeneration == 1,
					"%s is %s for reason %s, want %s for reason %s", kind, got.Status, got.Reason, want, test.wantReason)
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
		"another cause":  {"connect: connection refused", Failure{"ListFailed", "connect: no route to host"}, WriteChanged},
		"another reason": {"connect: connection refused", Failure{"PartialList", "connect: connection refused"}, WriteChanged},
	} {
		t.Run(name, func(t *testing.T) {
			before := statusAfterFailure(v1alpha1.JobReportStatus{}, Failure{"ListFailed", row.message}, testTime)
			after := statusAfterFailure(before, row.second, testTime.Add(time.Minute))
			assert.Equal(t, "write", row.want, compareStatus("a", &before, &after))
		})
	}
}
