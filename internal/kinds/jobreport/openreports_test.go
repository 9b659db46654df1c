package jobreport

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

var viewTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newJobReport returns a JobReport in the namespace team-a with the findings.
func newJobReport(findings ...v1alpha1.JobFinding) *v1alpha1.JobReport {
	r := &v1alpha1.JobReport{}
	r.Namespace, r.Name, r.UID = "team-a", "jobs", "uid-of-the-report"
	r.Status.Findings = findings
	return r
}

func zombieFinding(name string) v1alpha1.JobFinding {
	return v1alpha1.JobFinding{
		Name: name, UID: types.UID("uid-" + name),
		JobFindingClass: v1alpha1.JobFindingClass{Category: "Zombie", Severity: "High", Reason: "NeverStarted"},
		Since:           new(metav1.NewTime(viewTime)), Message: "never started",
	}
}

func TestSummaryCountsOmittedJobs(t *testing.T) {
	from := newJobReport(zombieFinding("a"))
	from.Status.Summary = v1alpha1.JobSummary{Total: 6000, Healthy: 700, Suspicious: 300, Zombie: 5000}
	want := openreportsv1alpha1.ReportSummary{Pass: 700, Warn: 300, Fail: 5000}
	if got := FromJobReport(from); got.Summary != want || len(got.Results) != 1 {
		t.Errorf("%+v and %d results, want %+v and 1", got.Summary, len(got.Results), want)
	}
}

const nextNeverStarted = "kubectl get lease kube-controller-manager -n kube-system"

func TestEachFindingBecomesAResult(t *testing.T) {
	result := func(change func(*openreportsv1alpha1.ReportResult)) openreportsv1alpha1.ReportResult {
		r := openreportsv1alpha1.ReportResult{
			Policy: "NeverStarted", Rule: "NeverStarted", Category: "Zombie", Severity: "high", Result: "fail",
			Timestamp: metav1.Timestamp{Seconds: viewTime.Unix()}, Description: "never started",
			Properties: map[string]string{"next": nextNeverStarted},
			Subjects: []corev1.ObjectReference{{
				APIVersion: "batch/v1", Kind: "Job", Namespace: "team-a", Name: "a", UID: "uid-a",
			}},
		}
		change(&r)
		return r
	}
	for name, row := range map[string]struct {
		finding func(*v1alpha1.JobFinding)
		want    func(*openreportsv1alpha1.ReportResult)
	}{
		"a zombie fails": {func(*v1alpha1.JobFinding) {}, func(*openreportsv1alpha1.ReportResult) {}},
		"a suspicious Job is a warning": {
			func(f *v1alpha1.JobFinding) { f.Category, f.Severity = "Suspicious", "Medium" },
			func(r *openreportsv1alpha1.ReportResult) {
				r.Category, r.Result, r.Severity = "Suspicious", "warn", "medium"
			},
		},
		"the cause is a property": {
			func(f *v1alpha1.JobFinding) { f.Cause = "example.com/finalizer" },
			func(r *openreportsv1alpha1.ReportResult) { r.Properties["cause"] = "example.com/finalizer" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			finding := zombieFinding("a")
			row.finding(&finding)
			got := FromJobReport(newJobReport(finding)).Results
			assert.Equal(t, "results", []openreportsv1alpha1.ReportResult{result(row.want)}, got)
		})
	}
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
		"another message":            {func(r *openreportsv1alpha1.Report) { r.Results[0].Description = "edited" }, false},
		"a missing result":           {func(r *openreportsv1alpha1.Report) { r.Results = r.Results[1:] }, false},
		"another source":             {func(r *openreportsv1alpha1.Report) { r.Source = "kubectl" }, false},
		"another scope":              {func(r *openreportsv1alpha1.Report) { r.Scope = nil }, false},
		"owned by another JobReport": {func(r *openreportsv1alpha1.Report) { r.OwnerReferences[0].UID = "before" }, false},
		"no owner":                   {func(r *openreportsv1alpha1.Report) { r.OwnerReferences = nil }, false},
		"an additional owner": {func(r *openreportsv1alpha1.Report) {
			r.OwnerReferences = append(r.OwnerReferences, metav1.OwnerReference{UID: "another"})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			next := FromJobReport(newJobReport(zombieFinding("a"), zombieFinding("b")))
			stored := next.DeepCopy()
			row.change(stored)
			if got := HasSameContent(stored, next); got != row.want {
				t.Errorf("the same: %t, want %t", got, row.want)
			}
		})
	}
	foreign := FromJobReport(newJobReport())
	foreign.Labels = map[string]string{"app.kubernetes.io/managed-by": "another"}
	if !IsManagedByYardmaster(FromJobReport(newJobReport())) || IsManagedByYardmaster(foreign) {
		t.Error("a Report of another owner is recognized as one of Yardmaster, or the other way round")
	}
}

func TestAFindingWithoutATimeIsAppliedWithoutATimestamp(t *testing.T) {
	withoutTime := zombieFinding("a")
	withoutTime.Since = nil
	applied, err := ApplyConfiguration(FromJobReport(newJobReport(withoutTime, zombieFinding("b"))))
	require.NoError(t, err)
	results, _, err := unstructured.NestedSlice(applied.Object, "results")
	require.NoError(t, err)
	for i, want := range []any{nil, map[string]any{"seconds": viewTime.Unix(), "nanos": int64(0)}} {
		if diff := cmp.Diff(want, results[i].(map[string]any)["timestamp"]); diff != "" {
			t.Errorf("timestamp of result %d (-want +got):\n%s", i, diff)
		}
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
			from.Status = scanEntries(v1alpha1.JobReportStatus{}, viewTime, MaxFindings, rows...)
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
