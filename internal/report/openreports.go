package report

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// ConditionOpenReportsReady is True when the findings are in an OpenReports Report too,
// and False when they could not be. A JobReport that is not asked for a Report has none.
const ConditionOpenReportsReady = "OpenReportsReady"

// Reasons of that condition.
const (
	ReasonWritten     = "Written"
	ReasonCRDMissing  = "CRDMissing"
	ReasonNameTaken   = "NameTaken"
	ReasonWriteFailed = "WriteFailed"
)

// Reasons of events about that condition.
const (
	EventOpenReportsFailed    = "OpenReportsFailed"
	EventOpenReportsRecovered = "OpenReportsRecovered"
)

// Mirrored is the status once the findings are in a Report too, or could not be written there.
func Mirrored(before v1alpha1.JobReportStatus, failure *Failure, now time.Time) v1alpha1.JobReportStatus {
	after := *before.DeepCopy()
	if failure == nil {
		set(&after, ConditionOpenReportsReady, metav1.ConditionTrue, ReasonWritten, "the findings are in a Report too", now)
		return after
	}
	set(&after, ConditionOpenReportsReady, metav1.ConditionFalse, failure.Reason, failure.message(&before, ConditionOpenReportsReady), now)
	return after
}

// Unmirrored is the status of a JobReport that is not asked for a Report, or not any more.
func Unmirrored(before v1alpha1.JobReportStatus) v1alpha1.JobReportStatus {
	before.Conditions = slices.Clone(before.Conditions)
	meta.RemoveStatusCondition(&before.Conditions, ConditionOpenReportsReady)
	return before
}
