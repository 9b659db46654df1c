package jobreport

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// transitions are the changes of conditions that cause events. The event about a failure has the condition's reason, and is
// repeated when the reason changes.
var transitions = []struct {
	conditionType         string
	badStatus, goodStatus metav1.ConditionStatus
	isFailure             bool
	badReason, goodReason string
}{
	{v1alpha1.ConditionReady, metav1.ConditionFalse, metav1.ConditionTrue, true, v1alpha1.EventScanFailed, v1alpha1.EventScanRecovered},
	{v1alpha1.ConditionTruncated, metav1.ConditionTrue, metav1.ConditionFalse, false, v1alpha1.EventTruncated, v1alpha1.EventNotTruncated},
	{v1alpha1.ConditionOpenReportsReady, metav1.ConditionFalse, metav1.ConditionTrue, true, v1alpha1.EventOpenReportsFailed, v1alpha1.EventOpenReportsRecovered},
}

// transitionEvents returns the events about changed conditions. Findings change all the time, so no event reports them.
func transitionEvents(before, after *v1alpha1.JobReportStatus) []decision.Event {
	var events []decision.Event
	for _, t := range transitions {
		was, is := conditionOrEmpty(before, t.conditionType), conditionOrEmpty(after, t.conditionType)
		event := decision.Event{Type: corev1.EventTypeNormal, Action: "Scan", Message: is.Message}
		switch {
		case is.Status == t.badStatus && t.isFailure && (was.Status != t.badStatus || was.Reason != is.Reason):
			event.Type, event.Reason, event.Message = corev1.EventTypeWarning, t.badReason, is.Reason+": "+is.Message
		case is.Status == t.badStatus && was.Status != t.badStatus:
			event.Reason = t.badReason
		case was.Status == t.badStatus && is.Status == t.goodStatus:
			event.Reason = t.goodReason
		default:
			continue
		}
		events = append(events, event)
	}
	return events
}

func conditionOrEmpty(status *v1alpha1.JobReportStatus, kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(status.Conditions, kind), metav1.Condition{})
}
