package report

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/zombie"
)

// Failure is why a scan did not see all Jobs.
type Failure struct {
	// Reason of the condition ScanFailed.
	Reason string
	// Message for people.
	Message string
}

// Failed is the status after a scan that failed: what was found before stays, since Jobs
// that were not listed are not gone.
func Failed(before v1alpha1.JobReportStatus, failure Failure, now time.Time) v1alpha1.JobReportStatus {
	after := *before.DeepCopy()
	message := zombie.Short(failure.Message, zombie.MaxMessage)
	set(&after, v1alpha1.ConditionScanFailed, metav1.ConditionTrue, failure.Reason, message, now)
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

// Event is one to emit about a JobReport.
type Event struct {
	Type, Reason, Message string
}

// The types of events, as package core/v1 has them.
const (
	normal  = "Normal"
	warning = "Warning"
)

// Events are those about what changed between two stored statuses: only conditions, as
// findings come and go without end.
func Events(before, after *v1alpha1.JobReportStatus) []Event {
	var events []Event
	was, is := about(before, v1alpha1.ConditionScanFailed), about(after, v1alpha1.ConditionScanFailed)
	switch {
	case is.Status == metav1.ConditionTrue && (was.Status != metav1.ConditionTrue || was.Reason != is.Reason):
		events = append(events, Event{warning, v1alpha1.EventScanFailed, is.Reason + ": " + is.Message})
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		events = append(events, Event{normal, v1alpha1.EventScanRecovered, is.Message})
	}
	was, is = about(before, v1alpha1.ConditionTruncated), about(after, v1alpha1.ConditionTruncated)
	switch {
	case is.Status == metav1.ConditionTrue && was.Status != metav1.ConditionTrue:
		events = append(events, Event{normal, v1alpha1.EventTruncated, is.Message})
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		events = append(events, Event{normal, v1alpha1.EventNotTruncated, is.Message})
	}
	return events
}

// about is the condition of that type; an empty one when there is none.
func about(status *v1alpha1.JobReportStatus, kind string) metav1.Condition {
	if condition := meta.FindStatusCondition(status.Conditions, kind); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}
