package report

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// StatusAfterFailure is the status after a scan that failed: what was found before stays, since Jobs
// that were not listed are not gone.
func StatusAfterFailure(before v1alpha1.JobReportStatus, failure ScanFailure, now time.Time) v1alpha1.JobReportStatus {
	after := *before.DeepCopy()
	setCondition(&after, v1alpha1.ConditionScanFailed, metav1.ConditionTrue, failure.Reason, failure.stableMessage(&before, v1alpha1.ConditionScanFailed), now)
	stale := "no scan has succeeded yet"
	if before.LastScanTime != nil {
		stale = "the last scan failed: this is what the last one found that did not"
	}
	setCondition(&after, v1alpha1.ConditionReportReady, metav1.ConditionFalse, v1alpha1.ReasonScanFailed, stale, now)
	return after
}

// setSuccessConditions sets the conditions of a scan that has seen all Jobs. It is told whether there
// was no room for rows that were asked for.
func setSuccessConditions(after *v1alpha1.JobReportStatus, tooBig bool, now time.Time) {
	setCondition(after, v1alpha1.ConditionReportReady, metav1.ConditionTrue, v1alpha1.ReasonScanned, "all Jobs were scanned", now)
	setCondition(after, v1alpha1.ConditionScanFailed, metav1.ConditionFalse, v1alpha1.ReasonScanned, "all Jobs were scanned", now)

	unhealthy := after.Summary.Suspicious + after.Summary.Zombie
	message := fmt.Sprintf("findings has %d of %d Jobs", len(after.Findings), unhealthy)
	switch {
	case tooBig:
		setCondition(after, v1alpha1.ConditionTruncated, metav1.ConditionTrue, v1alpha1.ReasonTooBig, message, now)
	case after.Omitted > 0:
		setCondition(after, v1alpha1.ConditionTruncated, metav1.ConditionTrue, v1alpha1.ReasonTooManyFindings, message, now)
	default:
		setCondition(after, v1alpha1.ConditionTruncated, metav1.ConditionFalse, v1alpha1.ReasonAllFindings,
			"findings has all Jobs that are not healthy", now)
	}
}

func setCondition(status *v1alpha1.JobReportStatus, kind string, value metav1.ConditionStatus, reason, message string, now time.Time) {
	status.Conditions = slices.Clone(status.Conditions)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}
