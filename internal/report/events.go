package report

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/core"
)

// transitionEvents returns the events about changed conditions. No event reports findings, which
// change all the time.
func transitionEvents(before, after *v1alpha1.JobReportStatus) []core.Event {
	var events []core.Event
	emit := func(kind, reason, message string) {
		events = append(events, core.Event{Type: kind, Reason: reason, Action: "Scan", Message: message})
	}
	was, is := conditionOrEmpty(before, v1alpha1.ConditionScanFailed), conditionOrEmpty(after, v1alpha1.ConditionScanFailed)
	switch {
	case is.Status == metav1.ConditionTrue && (was.Status != metav1.ConditionTrue || was.Reason != is.Reason):
		emit(corev1.EventTypeWarning, v1alpha1.EventScanFailed, is.Reason+": "+is.Message)
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		emit(corev1.EventTypeNormal, v1alpha1.EventScanRecovered, is.Message)
	}
	was, is = conditionOrEmpty(before, v1alpha1.ConditionTruncated), conditionOrEmpty(after, v1alpha1.ConditionTruncated)
	switch {
	case is.Status == metav1.ConditionTrue && was.Status != metav1.ConditionTrue:
		emit(corev1.EventTypeNormal, v1alpha1.EventTruncated, is.Message)
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		emit(corev1.EventTypeNormal, v1alpha1.EventNotTruncated, is.Message)
	}
	was, is = conditionOrEmpty(before, v1alpha1.ConditionOpenReportsReady), conditionOrEmpty(after, v1alpha1.ConditionOpenReportsReady)
	switch {
	case is.Status == metav1.ConditionFalse && (was.Status != metav1.ConditionFalse || was.Reason != is.Reason):
		emit(corev1.EventTypeWarning, v1alpha1.EventOpenReportsFailed, is.Reason+": "+is.Message)
	case was.Status == metav1.ConditionFalse && is.Status == metav1.ConditionTrue:
		emit(corev1.EventTypeNormal, v1alpha1.EventOpenReportsRecovered, is.Message)
	}
	return events
}

func conditionOrEmpty(status *v1alpha1.JobReportStatus, kind string) metav1.Condition {
	if condition := meta.FindStatusCondition(status.Conditions, kind); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}
