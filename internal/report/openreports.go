package report

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Mirrored is the status once the findings are in a Report too, or could not be written there.
func Mirrored(before v1alpha1.JobReportStatus, failure *Failure, now time.Time) v1alpha1.JobReportStatus {
	after := *before.DeepCopy()
	if failure == nil {
		set(&after, v1alpha1.ConditionOpenReportsReady, metav1.ConditionTrue, v1alpha1.ReasonWritten, "the findings are in a Report too", now)
		return after
	}
	set(&after, v1alpha1.ConditionOpenReportsReady, metav1.ConditionFalse, failure.Reason, failure.message(&before, v1alpha1.ConditionOpenReportsReady), now)
	return after
}

// Unmirrored is the status of a JobReport that is not asked for a Report, or not any more.
func Unmirrored(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
	before.Conditions = slices.Clone(before.Conditions)
	meta.RemoveStatusCondition(&before.Conditions, v1alpha1.ConditionOpenReportsReady)
	return before
}
