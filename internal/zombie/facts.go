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

// facts are what the rules look at.
type facts struct {
	*batchv1.Job

	now        time.Time
	thresholds Thresholds
}

// grown is a finding once what it tells of is old enough.
func (f *facts) grown(threshold Threshold, since time.Time, reason Reason, cause, message string, arguments ...any) (Finding, bool) {
	age := f.age(since)
	switch {
	case threshold.Zombie > 0 && age >= threshold.Zombie:
		return finding(Zombie, High, since, reason, cause, message, arguments...), true
	case threshold.Suspicious > 0 && age >= threshold.Suspicious:
		return finding(Suspicious, Medium, since, reason, cause, message, arguments...), true
	default:
		return Finding{}, false
	}
}

// age is how long ago t was; a time that is unknown, or still to come, is no age at all.
func (f *facts) age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, f.now.Sub(t))
}

// suspicious is a finding at any age.
func suspicious(since time.Time, reason Reason, cause, message string, arguments ...any) (Finding, bool) {
	return finding(Suspicious, Medium, since, reason, cause, message, arguments...), true
}

func finding(category Category, severity Severity, since time.Time, reason Reason, cause, message string, arguments ...any) Finding {
	return Finding{
		Category: category,
		Severity: severity,
		Reason:   reason,
		Cause:    Short(cause, MaxCause),
		Since:    since,
		Message:  Short(fmt.Sprintf(message, arguments...), MaxMessage),
	}
}

// condition is the condition of that type, if it is True.
func (f *facts) condition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range f.Status.Conditions {
		c := &f.Status.Conditions[i]
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func (f *facts) complete() *batchv1.JobCondition { return f.condition(batchv1.JobComplete) }

func (f *facts) failed() *batchv1.JobCondition { return f.condition(batchv1.JobFailed) }

// finished is when the Job ended.
func (f *facts) finished() (at time.Time, finished bool) {
	for _, terminal := range []*batchv1.JobCondition{f.complete(), f.failed()} {
		if terminal != nil {
			return f.first(terminal.LastTransitionTime.Time, timeOf(f.Status.CompletionTime)), true
		}
	}
	return time.Time{}, false
}

func (f *facts) deleted() bool { return f.DeletionTimestamp != nil }

// unfinished reports whether the Job still has something to do: one that is being
// deleted is not expected to do anything any more.
func (f *facts) unfinished() bool {
	_, finished := f.finished()
	return !finished && !f.deleted()
}

// external is the controller other than Kubernetes' own that has the Job.
func (f *facts) external() (manager string, external bool) {
	by := f.Spec.ManagedBy
	if by == nil || *by == batchv1.JobControllerName {
		return "", false
	}
	return *by, true
}

func (f *facts) suspended() bool { return f.Spec.Suspend != nil && *f.Spec.Suspend }

// ending reports whether the Job is about to fail or to complete, and only waits for its
// Pods to go.
func (f *facts) ending() bool {
	return f.condition(batchv1.JobFailureTarget) != nil || f.condition(batchv1.JobSuccessCriteriaMet) != nil
}

// ours reports whether the Job controller should have the Job under way.
func (f *facts) ours() bool {
	_, external := f.external()
	return f.unfinished() && !f.ending() && !external && !f.suspended()
}

func (f *facts) started() bool { return f.Status.StartTime != nil }

// paused reports whether the Job is told to have no Pods.
func (f *facts) paused() bool { return f.Spec.Parallelism != nil && *f.Spec.Parallelism == 0 }

// running reports whether the Job should have Pods now.
func (f *facts) running() bool { return f.ours() && f.started() && !f.paused() }

func (f *facts) controlled() bool { return metav1.GetControllerOfNoCopy(f.Job) != nil }

func (f *facts) created() time.Time { return f.CreationTimestamp.Time }

func (f *facts) startTime() time.Time { return timeOf(f.Status.StartTime) }

// first is the first of the times that is known; the creation, when none is.
func (f *facts) first(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return f.created()
}

// edited is when metadata or spec were last changed, as far as managedFields tell: what
// they say now has been so since then or before. Otherwise it is the creation.
func (f *facts) edited() time.Time { return latest(f.created(), f.written("")) }

// observed is when the status was last changed, as far as managedFields tell: what it
// says now has been so all the time since.
func (f *facts) observed() time.Time { return f.written("status") }

func (f *facts) written(subresource string) time.Time {
	var last time.Time
	for i := range f.ManagedFields {
		if f.ManagedFields[i].Subresource == subresource {
			last = latest(last, timeOf(f.ManagedFields[i].Time))
		}
	}
	return last
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// after is t and so many seconds; a number that no duration can hold is a very long one.
func after(t time.Time, seconds int64) time.Time {
	const most = int64(math.MaxInt64 / time.Second)
	return t.Add(time.Duration(min(max(seconds, -most), most)) * time.Second)
}

// format is a time as messages have it.
func format(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Short is the text in one line of at most that many bytes.
func Short(text string, most int) string {
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
