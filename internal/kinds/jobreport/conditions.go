package jobreport

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// setExportCondition sets OpenReportsReady after the Report was written, and removes it when the export is disabled.
func setExportCondition(after, before *v1alpha1.JobReportStatus, o *Observation) {
	switch {
	case !o.ExportEnabled:
		meta.RemoveStatusCondition(&after.Conditions, v1alpha1.ConditionOpenReportsReady)
	case o.Export == nil:
	case o.Export.Failure == nil:
		setCondition(after, v1alpha1.ConditionOpenReportsReady, metav1.ConditionTrue, v1alpha1.ReasonWritten,
			"the OpenReports Report has the findings", o.Now)
	default:
		failure := o.Export.Failure
		setCondition(after, v1alpha1.ConditionOpenReportsReady, metav1.ConditionFalse, failure.Reason,
			failure.stableMessage(before, v1alpha1.ConditionOpenReportsReady), o.Now)
	}
}

// setSummaryConditions sets Ready, Reconciling and Stalled. A scan is retried after every interval but cannot succeed before
// somebody grants the permission or creates the namespace.
func setSummaryConditions(after, before *v1alpha1.JobReportStatus, o *Observation) {
	summary := decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonScanned, Message: "all Jobs were scanned"}
	if failure := o.Scan.Failure; failure != nil {
		message := failure.stableMessage(before, v1alpha1.ConditionReady)
		summary = decision.Summary{Ready: metav1.ConditionFalse, Reason: failure.Reason, Message: message, Progress: decision.InProgress}
		if slices.Contains([]string{v1alpha1.ReasonForbidden, v1alpha1.ReasonNamespaceNotFound}, failure.Reason) {
			summary.Progress = decision.Stuck
		}
	}
	decision.Set(&after.Conditions, after.ObservedGeneration, metav1.NewTime(o.Now.Truncate(time.Second)), summary)
}

func setCondition(status *v1alpha1.JobReportStatus, kind string, value metav1.ConditionStatus, reason, message string, now time.Time) {
	state := decision.State{Status: value, Reason: reason, Message: message}
	decision.SetState(&status.Conditions, 0, metav1.NewTime(now.Truncate(time.Second)), kind, state) // no generation: it describes Jobs
}

// Failure is the reason and message of the condition about a failed scan or export.
type Failure struct{ Reason, Message string }

// stableMessage returns the condition's present message if it differs only in numbers. An error may contain a port or a time
// that differs for each attempt, and each difference would cause a write.
func (f *Failure) stableMessage(before *v1alpha1.JobReportStatus, kind string) string {
	message := TruncateText(f.Message, MaxMessageBytes)
	if was := conditionOrEmpty(before, kind); was.Reason == f.Reason && slices.Equal(wordsWithoutDigits(was.Message), wordsWithoutDigits(message)) {
		return was.Message
	}
	return message
}

func wordsWithoutDigits(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
}
