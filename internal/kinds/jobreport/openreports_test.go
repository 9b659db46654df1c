package jobreport

import (
	"encoding/json"
	"fmt"
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

func TestAReportIsOwnedByItsJobReport(t *testing.T) {
	got := FromJobReport(newJobReport())
	want := metav1.ObjectMeta{
		Namespace: "team-a", Name: "yardmaster-jobs",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "yardmaster"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "yardmaster.dev/v1alpha1", Kind: "JobReport", Name: "jobs", UID: "uid-of-the-report",
		}},
	}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if got.APIVersion != "openreports.io/v1alpha1" || got.Kind != "Report" || got.Source != "yardmaster" {
		t.Errorf("%s %s of %s", got.APIVersion, got.Kind, got.Source)
	}
	if diff := cmp.Diff(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "team-a"}, got.Scope); diff != "" {
		t.Errorf("scope (-want +got):\n%s", diff)
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
		"a zombie fails": {
			func(*v1alpha1.JobFinding) {},
			func(*openreportsv1alpha1.ReportResult) {},
		},
		"a suspicious Job is a warning": {
			func(f *v1alpha1.JobFinding) { f.Category, f.Severity = "Suspicious", "Medium" },
			func(r *openreportsv1alpha1.ReportResult) {
				r.Category, r.Result, r.Severity = "Suspicious", "warn", "medium"
			},
		},
		"a finding of low severity": {
			func(f *v1alpha1.JobFinding) { f.Category, f.Severity = "Suspicious", "Low" },
			func(r *openreportsv1alpha1.ReportResult) {
				r.Category, r.Result, r.Severity = "Suspicious", "warn", "low"
			},
		},
		"the cause is a property": {
			func(f *v1alpha1.JobFinding) { f.Cause = "example.com/finalizer" },
			func(r *openreportsv1alpha1.ReportResult) {
				r.Properties["cause"] = "example.com/finalizer"
			},
		},
		"a finding without a time": {
			func(f *v1alpha1.JobFinding) { f.Since = nil },
			func(r *openreportsv1alpha1.ReportResult) { r.Timestamp = metav1.Timestamp{} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			finding := zombieFinding("a")
			row.finding(&finding)
			got := FromJobReport(newJobReport(finding)).Results
			if diff := cmp.Diff([]openreportsv1alpha1.ReportResult{result(row.want)}, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyConfigurationOmitsUnknownFields(t *testing.T) {
	withoutTime := zombieFinding("a")
	withoutTime.Since = nil
	applied, err := ApplyConfiguration(FromJobReport(newJobReport(withoutTime, zombieFinding("b"))))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{
		map[string]any{
			"policy": "NeverStarted", "rule": "NeverStarted", "category": "Zombie", "severity": "high", "result": "fail",
			"message":    "never started",
			"properties": map[string]any{"next": nextNeverStarted},
			"resources":  []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "namespace": "team-a", "name": "a", "uid": "uid-a"}},
		},
		map[string]any{
			"policy": "NeverStarted", "rule": "NeverStarted", "category": "Zombie", "severity": "high", "result": "fail",
			"message":    "never started",
			"properties": map[string]any{"next": nextNeverStarted},
			"timestamp":  map[string]any{"seconds": viewTime.Unix(), "nanos": int64(0)},
			"resources":  []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "namespace": "team-a", "name": "b", "uid": "uid-b"}},
		},
	}
	if diff := cmp.Diff(want, applied.Object["results"]); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(applied.Object, "metadata", "creationTimestamp"); found {
		t.Error("creationTimestamp is set")
	}
	counts := map[string]any{"pass": int64(0), "warn": int64(0), "fail": int64(0), "error": int64(0), "skip": int64(0)}
	if diff := cmp.Diff(counts, applied.Object["summary"]); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if applied, err = ApplyConfiguration(FromJobReport(newJobReport())); err != nil || applied.Object["results"] != nil {
		t.Errorf("results of a report without findings: %v, %v", applied.Object["results"], err)
	}
}

func TestHasSameContentIgnoresIrrelevantDifferences(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*openreportsv1alpha1.Report)
		want   bool
	}{
		"no difference": {func(*openreportsv1alpha1.Report) {}, true},
		"an added label": {func(r *openreportsv1alpha1.Report) {
			r.Labels["team"], r.ResourceVersion = "a", "5"
		}, true},
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
}

func TestOnlyALabeledReportIsManagedByYardmaster(t *testing.T) {
	report := FromJobReport(newJobReport())
	if !IsManagedByYardmaster(report) {
		t.Error("a generated report is not recognized")
	}
	report.Labels["app.kubernetes.io/managed-by"] = "another"
	if IsManagedByYardmaster(report) {
		t.Error("a report with another manager is recognized")
	}
}

// maxReportBytes bounds the Report of the largest JobReport. A result adds only constant text and the
// Job's name to its finding.
const maxReportBytes = 128 << 10

func TestTheSizeOfAReportIsBounded(t *testing.T) {
	for name, message := range map[string]string{
		"long messages":                   strings.Repeat("x", MaxMessageBytes),
		"messages that grow when encoded": strings.Repeat("<", MaxMessageBytes),
		"short messages":                  "",
	} {
		t.Run(name, func(t *testing.T) {
			aggregator := NewAggregator(MaxFindings)
			for i := range 5000 {
				aggregator.Add(Entry{
					Name: fmt.Sprintf("%059d-%03d", i, i%1000), UID: types.UID(fmt.Sprintf("%036d", i)),
					Finding: Finding{
						Category: CategoryZombie, Severity: SeverityHigh, Reason: ReasonMaxFailedIndexesExceeded,
						Since: viewTime, Message: message,
					},
				})
			}
			from := newJobReport()
			scan := Scan{Jobs: aggregator, StartTime: viewTime, Duration: time.Second}
			from.Status = Decide(Observation{Report: from, Scan: scan, Now: viewTime}).Status
			applied, err := ApplyConfiguration(FromJobReport(from))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(applied)
			if err != nil {
				t.Fatal(err)
			}
			if len(raw) > maxReportBytes {
				t.Errorf("%d bytes, want at most %d", len(raw), maxReportBytes)
			}
			if results := applied.Object["results"].([]any); len(results) != len(from.Status.Findings) {
				t.Errorf("%d results of %d findings", len(results), len(from.Status.Findings))
			}
			t.Logf("%d results, %d bytes", len(from.Status.Findings), len(raw))
		})
	}
}
