package report

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// StatusAfterExport is the status once the findings are in a Report too, or could not be written there.
func StatusAfterExport(before v1alpha1.JobReportStatus, failure *ScanFailure, now time.Time) v1alpha1.JobReportStatus {
	after := *before.DeepCopy()
	if failure == nil {
		setCondition(&after, v1alpha1.ConditionOpenReportsReady, metav1.ConditionTrue, v1alpha1.ReasonWritten, "the findings are in a Report too", now)
		return after
	}
	setCondition(&after, v1alpha1.ConditionOpenReportsReady, metav1.ConditionFalse, failure.Reason, failure.stableMessage(&before, v1alpha1.ConditionOpenReportsReady), now)
	return after
}

// StatusWithoutExport is the status of a JobReport that is not asked for a Report, or not any more.
func StatusWithoutExport(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
	before.Conditions = slices.Clone(before.Conditions)
	meta.RemoveStatusCondition(&before.Conditions, v1alpha1.ConditionOpenReportsReady)
	return before
}
