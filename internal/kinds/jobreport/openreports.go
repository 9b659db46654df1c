package jobreport

import (
	"fmt"
	"maps"
	"slices"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// ReportName is the name of Yardmaster's Report in a namespace.
const ReportName = "yardmaster-jobs"

// reportSource names Yardmaster as the origin of a Report and as its manager.
const reportSource = "yardmaster"

// managedByLabel distinguishes Yardmaster's Report from another of the same name.
const managedByLabel = "app.kubernetes.io/managed-by"

// FromJobReport returns the Report of a stored JobReport, which owns it: the garbage collector deletes both. The owner
// reference does not block the owner's deletion, because that needs permission for the finalizers of JobReports.
func FromJobReport(report *v1alpha1.JobReport) *openreportsv1alpha1.Report {
	var results []openreportsv1alpha1.ReportResult
	for i := range report.Status.Findings {
		results = append(results, newResult(report.Namespace, &report.Status.Findings[i]))
	}
	jobs := &report.Status.Summary
	return &openreportsv1alpha1.Report{
		TypeMeta: metav1.TypeMeta{APIVersion: openreportsv1alpha1.GroupVersion.String(), Kind: "Report"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: report.Namespace,
			Name:      ReportName,
			Labels:    map[string]string{managedByLabel: reportSource},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "JobReport", Name: report.Name, UID: report.UID,
			}},
		},
		Source: reportSource,
		Scope:  &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: report.Namespace},
		// The summary counts all Jobs, also those without a result.
		Summary: openreportsv1alpha1.ReportSummary{Pass: int(jobs.Healthy), Warn: int(jobs.Suspicious), Fail: int(jobs.Zombie), Skip: int(jobs.Ignored)},
		Results: results,
	}
}

func newResult(namespace string, finding *v1alpha1.JobFinding) openreportsv1alpha1.ReportResult {
	result := openreportsv1alpha1.ReportResult{
		Policy:      finding.Reason,
		Rule:        finding.Reason,
		Category:    string(finding.Category),
		Severity:    severityByJobSeverity[finding.Severity],
		Result:      resultByCategory[finding.Category],
		Description: finding.Message,
		Subjects: []corev1.ObjectReference{{
			APIVersion: "batch/v1", Kind: "Job", Namespace: namespace, Name: finding.Name, UID: finding.UID,
		}},
	}
	if finding.Since != nil {
		result.Timestamp = metav1.Timestamp{Seconds: finding.Since.Unix()}
	}
	result.Properties = properties(namespace, finding)
	return result
}

// properties returns further statements of a finding; nil without any.
func properties(namespace string, finding *v1alpha1.JobFinding) map[string]string {
	_, next := NextStep(Reason(finding.Reason), namespace, finding.Name)
	stated := map[string]string{"cause": finding.Cause, "next": next}
	if finding.Owner != nil {
		stated["owner"] = finding.Owner.Kind + "/" + finding.Owner.Name
	}
	maps.DeleteFunc(stated, func(_, value string) bool { return value == "" })
	if len(stated) == 0 {
		return nil
	}
	return stated
}

var resultByCategory = map[v1alpha1.JobCategory]openreportsv1alpha1.Result{
	v1alpha1.JobSuspicious: "warn",
	v1alpha1.JobZombie:     "fail",
}

var severityByJobSeverity = map[v1alpha1.JobSeverity]openreportsv1alpha1.ResultSeverity{
	v1alpha1.SeverityLow:    "low",
	v1alpha1.SeverityMedium: "medium",
	v1alpha1.SeverityHigh:   "high",
}

// ApplyConfiguration returns a Report without the fields that are not set. The Go type cannot omit them, and a result of
// unknown time would get a time in 1970.
func ApplyConfiguration(report *openreportsv1alpha1.Report) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(report)
	if err != nil {
		return nil, fmt.Errorf("encoding the Report: %w", err)
	}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	results, _ := fields["results"].([]any) // a Report without results lacks the field
	for i := range results {
		result, _ := results[i].(map[string]any) // each result is an object
		if report.Results[i].Source == "" {
			delete(result, "source")
		}
		if report.Results[i].Timestamp == (metav1.Timestamp{}) {
			delete(result, "timestamp")
		}
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// IsManagedByYardmaster reports whether Yardmaster created the stored Report and may overwrite it.
func IsManagedByYardmaster(stored *openreportsv1alpha1.Report) bool {
	return stored.Labels[managedByLabel] == reportSource
}

// HasSameContent reports whether applying next would not change the stored Report. Foreign labels and annotations do not
// matter.
func HasSameContent(stored, next *openreportsv1alpha1.Report) bool {
	for i := range next.OwnerReferences {
		isSameOwner := func(owner metav1.OwnerReference) bool { return owner.UID == next.OwnerReferences[i].UID }
		if !slices.ContainsFunc(stored.OwnerReferences, isSameOwner) {
			return false
		}
	}
	return stored.Source == next.Source && stored.Summary == next.Summary &&
		equality.Semantic.DeepEqual(stored.Scope, next.Scope) && equality.Semantic.DeepEqual(stored.Results, next.Results)
}
