package zombie

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// jobFacts are what the rules look at.
type jobFacts struct {
	*batchv1.Job

	now        time.Time
	thresholds Thresholds
}

// findingByAge is a finding once what it tells of is old enough.
func (f *jobFacts) findingByAge(threshold Threshold, since time.Time, reason Reason, cause, message string, arguments ...any) (Finding, bool) {
	age := f.timeSince(since)
	switch {
	case threshold.Zombie > 0 && age >= threshold.Zombie:
		return newFinding(CategoryZombie, SeverityHigh, since, reason, cause, message, arguments...), true
	case threshold.Suspicious > 0 && age >= threshold.Suspicious:
		return newFinding(CategorySuspicious, SeverityMedium, since, reason, cause, message, arguments...), true
	default:
		return Finding{}, false
	}
}

// timeSince is how long ago t was; a time that is unknown, or still to come, is no age at all.
func (f *jobFacts) timeSince(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, f.now.Sub(t))
}

// suspiciousFinding is a finding at any age.
func suspiciousFinding(since time.Time, reason Reason, cause, message string, arguments ...any) (Finding, bool) {
	return newFinding(CategorySuspicious, SeverityMedium, since, reason, cause, message, arguments...), true
}

func newFinding(category Category, severity Severity, since time.Time, reason Reason, cause, message string, arguments ...any) Finding {
	return Finding{
		Category: category,
		Severity: severity,
		Reason:   reason,
		Cause:    TruncateText(cause, MaxCauseBytes),
		Since:    since,
		Message:  TruncateText(fmt.Sprintf(message, arguments...), MaxMessageBytes),
	}
}

// trueCondition is the condition of that type, if it is True.
func (f *jobFacts) trueCondition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range f.Status.Conditions {
		c := &f.Status.Conditions[i]
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func (f *jobFacts) completeCondition() *batchv1.JobCondition {
	return f.trueCondition(batchv1.JobComplete)
}

func (f *jobFacts) failedCondition() *batchv1.JobCondition { return f.trueCondition(batchv1.JobFailed) }

// finishTime is when the Job ended.
func (f *jobFacts) finishTime() (at time.Time, finished bool) {
	for _, terminal := range []*batchv1.JobCondition{f.completeCondition(), f.failedCondition()} {
		if terminal != nil {
			return f.firstKnownTime(terminal.LastTransitionTime.Time, timeOrZero(f.Status.CompletionTime)), true
		}
	}
	return time.Time{}, false
}

func (f *jobFacts) isDeleted() bool { return f.DeletionTimestamp != nil }

// isUnfinished reports whether the Job still has something to do: one that is being
// deleted is not expected to do anything any more.
func (f *jobFacts) isUnfinished() bool {
	_, finished := f.finishTime()
	return !finished && !f.isDeleted()
}

// externalManager is the controller other than Kubernetes' own that has the Job.
func (f *jobFacts) externalManager() (manager string, external bool) {
	by := f.Spec.ManagedBy
	if by == nil || *by == batchv1.JobControllerName {
		return "", false
	}
	return *by, true
}

func (f *jobFacts) isSuspended() bool { return f.Spec.Suspend != nil && *f.Spec.Suspend }

// isEnding reports whether the Job is about to fail or to complete, and only waits for its
// Pods to go.
func (f *jobFacts) isEnding() bool {
	return f.trueCondition(batchv1.JobFailureTarget) != nil || f.trueCondition(batchv1.JobSuccessCriteriaMet) != nil
}

// isExpectedToProgress reports whether the Job controller should have the Job under way.
func (f *jobFacts) isExpectedToProgress() bool {
	_, external := f.externalManager()
	return f.isUnfinished() && !f.isEnding() && !external && !f.isSuspended()
}

func (f *jobFacts) isStarted() bool { return f.Status.StartTime != nil }

// hasZeroParallelism reports whether the Job is told to have no Pods.
func (f *jobFacts) hasZeroParallelism() bool {
	return f.Spec.Parallelism != nil && *f.Spec.Parallelism == 0
}

// isExpectedToHavePods reports whether the Job should have Pods now.
func (f *jobFacts) isExpectedToHavePods() bool {
	return f.isExpectedToProgress() && f.isStarted() && !f.hasZeroParallelism()
}

func (f *jobFacts) hasController() bool { return metav1.GetControllerOfNoCopy(f.Job) != nil }

func (f *jobFacts) creationTime() time.Time { return f.CreationTimestamp.Time }

func (f *jobFacts) startTime() time.Time { return timeOrZero(f.Status.StartTime) }

// firstKnownTime is the first of the times that is known; the creation, when none is.
func (f *jobFacts) firstKnownTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return f.creationTime()
}

// lastEditTime is when metadata or spec were last changed, as far as managedFields tell: what
// they say now has been so since then or before. Otherwise it is the creation.
func (f *jobFacts) lastEditTime() time.Time { return laterTime(f.creationTime(), f.lastWriteTime("")) }

// lastStatusUpdateTime is when the status was last changed, as far as managedFields tell: what it
// says now has been so all the time since.
func (f *jobFacts) lastStatusUpdateTime() time.Time { return f.lastWriteTime("status") }

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

func timeOrZero(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// addSeconds is t and so many seconds; a number that no duration can hold is a very long one.
func addSeconds(t time.Time, seconds int64) time.Time {
	const most = int64(math.MaxInt64 / time.Second)
	return t.Add(time.Duration(min(max(seconds, -most), most)) * time.Second)
}

// formatTime is a time as messages have it.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// TruncateText is the text in one line of at most that many bytes.
func TruncateText(text string, most int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	if len(text) <= most {
		return text
	}
	const ellipsis = "…"
	end := most - len(ellipsis)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
