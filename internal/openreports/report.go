package openreports

import (
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Name of the one Report that a namespace has of Yardmaster.
const Name = "yardmaster-jobs"

// source is what a Report names as its origin, and who manages it.
const source = "yardmaster"

// managedBy is the label that tells a Report of ours from one that only has its name.
const managedBy = "app.kubernetes.io/managed-by"

// Of is the Report of a JobReport that is stored. It goes when the JobReport does. Its
// owner does not wait for that: to ask so, one would need a right to JobReports' finalizers.
func Of(report *v1alpha1.JobReport) *openreportsv1alpha1.Report {
	return &openreportsv1alpha1.Report{
		TypeMeta: metav1.TypeMeta{APIVersion: openreportsv1alpha1.GroupVersion.String(), Kind: "Report"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: report.Namespace,
			Name:      Name,
			Labels:    map[string]string{managedBy: source},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "JobReport", Name: report.Name, UID: report.UID,
			}},
		},
		Source:  source,
		Scope:   &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: report.Namespace},
		Summary: summary(&report.Status.Summary),
		Results: results(report),
	}
}

// summary counts all Jobs, also those that no result is about.
func summary(jobs *v1alpha1.JobSummary) openreportsv1alpha1.ReportSummary {
	return openreportsv1alpha1.ReportSummary{Pass: int(jobs.Healthy), Warn: int(jobs.Suspicious), Fail: int(jobs.Zombie)}
}

func results(report *v1alpha1.JobReport) []openreportsv1alpha1.ReportResult {
	var all []openreportsv1alpha1.ReportResult
	for i := range report.Status.Findings {
		all = append(all, result(report.Namespace, &report.Status.Findings[i]))
	}
	return all
}

func result(namespace string, finding *v1alpha1.JobFinding) openreportsv1alpha1.ReportResult {
	one := openreportsv1alpha1.ReportResult{
		Policy:      finding.Reason,
		Rule:        finding.Reason,
		Category:    string(finding.Category),
		Severity:    severities[finding.Severity],
		Result:      outcomes[finding.Category],
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

var outcomes = map[v1alpha1.JobCategory]openreportsv1alpha1.Result{
	v1alpha1.JobSuspicious: "warn",
	v1alpha1.JobZombie:     "fail",
}

var severities = map[v1alpha1.JobSeverity]openreportsv1alpha1.ResultSeverity{
	v1alpha1.SeverityLow:    "low",
	v1alpha1.SeverityMedium: "medium",
	v1alpha1.SeverityHigh:   "high",
}
