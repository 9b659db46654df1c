package jobreport

import (
	"encoding/json"
	"strings"
	"testing"

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
	suspicious.Category, suspicious.Severity, suspicious.Cause = "Suspicious", "Medium", "example.com/finalizer"
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
		result("b", "Suspicious", "medium", "warn", map[string]string{"next": nextNeverStarted, "cause": "example.com/finalizer"}),
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
	require.True(t, IsManagedByYardmaster(FromJobReport(newJobReport())) && !IsManagedByYardmaster(foreign),
		"a Report of another owner is recognized as one of Yardmaster, or the other way round")
}

func TestAFindingWithoutATimeIsAppliedWithoutATimestamp(t *testing.T) {
	withoutTime := zombieFinding("a")
	withoutTime.Since = nil
	applied, err := ApplyConfiguration(FromJobReport(newJobReport(withoutTime, zombieFinding("b"))))
	require.NoError(t, err)
	results, _, err := unstructured.NestedSlice(applied.Object, "results")
	require.NoError(t, err)
	for i, want := range []any{nil, map[string]any{"seconds": testTime.Unix(), "nanos": int64(0)}} {
		diff := cmp.Diff(want, results[i].(map[string]any)["timestamp"])
		require.True(t, diff == "", "timestamp of result %d (-want +got):\n%s", i, diff)
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
