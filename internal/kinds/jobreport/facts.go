package jobreport

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// jobFacts is the input of a rule's check.
type jobFacts struct {
	*batchv1.Job

	now       time.Time
	threshold Threshold
}

// findingByAge returns a finding if the time since then exceeds the rule's threshold, and nil otherwise.
func (f *jobFacts) findingByAge(since time.Time, reason Reason, cause, message string, arguments ...any) *Finding {
	if since.IsZero() {
		return nil // the age is unknown
	}
	age := f.now.Sub(since)
	switch {
	case f.threshold.Zombie > 0 && age >= f.threshold.Zombie:
		return newFinding(CategoryZombie, SeverityHigh, since, reason, cause, message, arguments...)
	case f.threshold.Suspicious > 0 && age >= f.threshold.Suspicious:
		return suspiciousFinding(since, reason, cause, message, arguments...)
	default:
		return nil
	}
}

func suspiciousFinding(since time.Time, reason Reason, cause, message string, arguments ...any) *Finding {
	return newFinding(CategorySuspicious, SeverityMedium, since, reason, cause, message, arguments...)
}

func newFinding(category Category, severity Severity, since time.Time, reason Reason, cause, message string, arguments ...any) *Finding {
	return &Finding{
		Category: category,
		Severity: severity,
		Reason:   reason,
		Cause:    TruncateText(cause, MaxCauseBytes),
		Since:    since,
		Message:  TruncateText(fmt.Sprintf(message, arguments...), MaxMessageBytes),
	}
}

// trueCondition returns the condition of this type if it is True, or nil.
func (f *jobFacts) trueCondition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range f.Status.Conditions {
		c := &f.Status.Conditions[i]
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func (f *jobFacts) finishTime() (at time.Time, finished bool) {
	for _, terminal := range []*batchv1.JobCondition{f.trueCondition(batchv1.JobComplete), f.trueCondition(batchv1.JobFailed)} {
		if terminal != nil {
			return f.firstKnownTime(terminal.LastTransitionTime.Time, timeOrZero(f.Status.CompletionTime)), true
		}
	}
	return time.Time{}, false
}

// isUnfinished is false for a deleted Job, which is not expected to make progress.
func (f *jobFacts) isUnfinished() bool {
	_, finished := f.finishTime()
	return !finished && f.DeletionTimestamp == nil
}

// externalManager returns spec.managedBy, and whether it names another controller than the Job controller.
func (f *jobFacts) externalManager() (manager string, external bool) {
	by := ptr.Deref(f.Spec.ManagedBy, batchv1.JobControllerName)
	return by, by != batchv1.JobControllerName
}

func (f *jobFacts) isSuspended() bool { return ptr.Deref(f.Spec.Suspend, false) }

// isExpectedToProgress reports whether the Job controller should work on the Job.
func (f *jobFacts) isExpectedToProgress() bool {
	_, external := f.externalManager()
	// Once its Pods have terminated, the Job will fail or complete.
	isEnding := f.trueCondition(batchv1.JobFailureTarget) != nil || f.trueCondition(batchv1.JobSuccessCriteriaMet) != nil
	return f.isUnfinished() && !isEnding && !external && !f.isSuspended()
}

func (f *jobFacts) hasZeroParallelism() bool { return ptr.Deref(f.Spec.Parallelism, 1) == 0 }

func (f *jobFacts) isExpectedToHavePods() bool {
	return f.isExpectedToProgress() && f.Status.StartTime != nil && !f.hasZeroParallelism()
}

func (f *jobFacts) hasController() bool { return metav1.GetControllerOfNoCopy(f.Job) != nil }

func (f *jobFacts) startTime() time.Time { return timeOrZero(f.Status.StartTime) }

// firstKnownTime returns the first time that is not zero, or the creation time.
func (f *jobFacts) firstKnownTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return f.CreationTimestamp.Time
}

// lastEditTime returns when metadata or spec were last changed according to managedFields, or the creation time: their current
// values are at least that old.
func (f *jobFacts) lastEditTime() time.Time {
	return laterTime(f.CreationTimestamp.Time, f.lastWriteTime(""))
}

// lastWriteTime returns when the subresource was last changed according to managedFields: its current values are at least that
// old.
func (f *jobFacts) lastWriteTime(subresource string) time.Time {
	var last time.Time
	for i := range f.ManagedFields {
		if f.ManagedFields[i].Subresource == subresource {
			last = laterTime(last, timeOrZero(f.ManagedFields[i].Time))
		}
	}
	return last
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func timeOrZero(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

// addSeconds limits the seconds to the range of a time.Duration.
func addSeconds(t time.Time, seconds int64) time.Time {
	const limit = int64(math.MaxInt64 / time.Second)
	return t.Add(time.Duration(min(max(seconds, -limit), limit)) * time.Second)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// TruncateText returns the text as one line of valid UTF-8 of at most maxBytes bytes.
func TruncateText(text string, maxBytes int) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, decision.TruncateMessage(text, maxBytes)))
}
