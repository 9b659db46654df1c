package openreports

import (
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// ReportName of the one Report that a namespace has of Yardmaster.
const ReportName = "yardmaster-jobs"

// reportSource is what a Report names as its origin, and who manages it.
const reportSource = "yardmaster"

// managedByLabel is the label that distinguishes our Report from another of the same name.
const managedByLabel = "app.kubernetes.io/managed-by"

// FromJobReport is the Report of a JobReport that is stored. It goes when the JobReport does. Its
// owner does not wait for that: to ask so, one would need a right to JobReports' finalizers.
func FromJobReport(report *v1alpha1.JobReport) *openreportsv1alpha1.Report {
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
		Source:  reportSource,
		Scope:   &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: report.Namespace},
		Summary: newSummary(&report.Status.Summary),
		Results: newResults(report),
	}
}

// newSummary counts all Jobs, also those that no result is about.
func newSummary(jobs *v1alpha1.JobSummary) openreportsv1alpha1.ReportSummary {
	return openreportsv1alpha1.ReportSummary{Pass: int(jobs.Healthy), Warn: int(jobs.Suspicious), Fail: int(jobs.Zombie)}
}

func newResults(report *v1alpha1.JobReport) []openreportsv1alpha1.ReportResult {
	var all []openreportsv1alpha1.ReportResult
	for i := range report.Status.Findings {
		all = append(all, newResult(report.Namespace, &report.Status.Findings[i]))
	}
	return all
}

func newResult(namespace string, finding *v1alpha1.JobFinding) openreportsv1alpha1.ReportResult {
	one := openreportsv1alpha1.ReportResult{
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
		one.Timestamp = metav1.Timestamp{Seconds: finding.Since.Unix()}
	}
	if finding.Cause != "" {
		one.Properties = map[string]string{"cause": finding.Cause}
	}
	return one
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
