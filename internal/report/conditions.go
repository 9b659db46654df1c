package report

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Failed is the status after a scan that failed: what was found before stays, since Jobs
// that were not listed are not gone.
func Failed(before v1alpha1.JobReportStatus, failure Failure, now time.Time) v1alpha1.JobReportStatus {
	after := *before.DeepCopy()
	set(&after, v1alpha1.ConditionScanFailed, metav1.ConditionTrue, failure.Reason, failure.message(&before, v1alpha1.ConditionScanFailed), now)
	stale := "no scan has succeeded yet"
	if before.LastScanTime != nil {
		stale = "the last scan failed: this is what the last one found that did not"
	}
	set(&after, v1alpha1.ConditionReportReady, metav1.ConditionFalse, v1alpha1.ReasonScanFailed, stale, now)
	return after
}

// succeed sets the conditions of a scan that has seen all Jobs. It is told whether there
// was no room for rows that were asked for.
func succeed(after *v1alpha1.JobReportStatus, tooBig bool, now time.Time) {
	set(after, v1alpha1.ConditionReportReady, metav1.ConditionTrue, v1alpha1.ReasonScanned, "all Jobs were scanned", now)
	set(after, v1alpha1.ConditionScanFailed, metav1.ConditionFalse, v1alpha1.ReasonScanned, "all Jobs were scanned", now)

	unhealthy := after.Summary.Suspicious + after.Summary.Zombie
	message := fmt.Sprintf("findings has %d of %d Jobs", len(after.Findings), unhealthy)
	switch {
	case tooBig:
		set(after, v1alpha1.ConditionTruncated, metav1.ConditionTrue, v1alpha1.ReasonTooBig, message, now)
	case after.Omitted > 0:
		set(after, v1alpha1.ConditionTruncated, metav1.ConditionTrue, v1alpha1.ReasonTooManyFindings, message, now)
	default:
		set(after, v1alpha1.ConditionTruncated, metav1.ConditionFalse, v1alpha1.ReasonAllFindings,
			"findings has all Jobs that are not healthy", now)
	}
}

func set(status *v1alpha1.JobReportStatus, kind string, value metav1.ConditionStatus, reason, message string, now time.Time) {
	status.Conditions = slices.Clone(status.Conditions)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}
