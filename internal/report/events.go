package report

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Event is one to emit about a JobReport.
type Event struct {
	Type, Reason, Message string
}

// The types of events, as package core/v1 has them.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

// Events are those about what changed between two stored statuses: only conditions, as
// findings come and go without end.
func Events(before, after *v1alpha1.JobReportStatus) []Event {
	var events []Event
	was, is := conditionOrEmpty(before, v1alpha1.ConditionScanFailed), conditionOrEmpty(after, v1alpha1.ConditionScanFailed)
	switch {
	case is.Status == metav1.ConditionTrue && (was.Status != metav1.ConditionTrue || was.Reason != is.Reason):
		events = append(events, Event{eventWarning, v1alpha1.EventScanFailed, is.Reason + ": " + is.Message})
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		events = append(events, Event{eventNormal, v1alpha1.EventScanRecovered, is.Message})
	}
	was, is = conditionOrEmpty(before, v1alpha1.ConditionTruncated), conditionOrEmpty(after, v1alpha1.ConditionTruncated)
	switch {
	case is.Status == metav1.ConditionTrue && was.Status != metav1.ConditionTrue:
		events = append(events, Event{eventNormal, v1alpha1.EventTruncated, is.Message})
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		events = append(events, Event{eventNormal, v1alpha1.EventNotTruncated, is.Message})
	}
	was, is = conditionOrEmpty(before, v1alpha1.ConditionOpenReportsReady), conditionOrEmpty(after, v1alpha1.ConditionOpenReportsReady)
	switch {
	case is.Status == metav1.ConditionFalse && (was.Status != metav1.ConditionFalse || was.Reason != is.Reason):
		events = append(events, Event{eventWarning, v1alpha1.EventOpenReportsFailed, is.Reason + ": " + is.Message})
	case was.Status == metav1.ConditionFalse && is.Status == metav1.ConditionTrue:
		events = append(events, Event{eventNormal, v1alpha1.EventOpenReportsRecovered, is.Message})
	}
	return events
}

// conditionOrEmpty is the condition of that type; an empty one when there is none.
func conditionOrEmpty(status *v1alpha1.JobReportStatus, kind string) metav1.Condition {
	if condition := meta.FindStatusCondition(status.Conditions, kind); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}
