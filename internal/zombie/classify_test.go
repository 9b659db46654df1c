package zombie

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noon is when the tests' Jobs are created.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// trait changes a Job that was just created.
type trait func(*batchv1.Job)

func jobWith(traits ...trait) *batchv1.Job {
	job := &batchv1.Job{}
	job.Name, job.Namespace, job.UID = "job", "ns", "1"
	job.CreationTimestamp = metav1.NewTime(noon)
	for _, trait := range traits {
		trait(job)
	}
	return job
}

// at is a time that long after noon.
func at(d time.Duration) time.Time { return noon.Add(d) }

func started(job *batchv1.Job) { job.Status.StartTime = new(metav1.NewTime(noon)) }

func startedAt(d time.Duration) trait {
	return func(job *batchv1.Job) { job.Status.StartTime = new(metav1.NewTime(at(d))) }
}

// pods are how many are active and ready.
func pods(active, ready int32) trait {
	return func(job *batchv1.Job) { job.Status.Active, job.Status.Ready = active, new(ready) }
}

func is(kind batchv1.JobConditionType, d time.Duration, reason, message string) trait {
	return condition(kind, corev1.ConditionTrue, d, reason, message)
}

func condition(kind batchv1.JobConditionType, status corev1.ConditionStatus, d time.Duration, reason, message string) trait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at(d)),
		})
	}
}

func complete(job *batchv1.Job) { is(batchv1.JobComplete, 0, "CompletionsReached", "done")(job) }

func failedFor(reason string) trait { return is(batchv1.JobFailed, 0, reason, "it broke") }

func deletedAt(d time.Duration, finalizers ...string) trait {
	return func(job *batchv1.Job) {
		job.DeletionTimestamp, job.Finalizers = new(metav1.NewTime(at(d))), finalizers
	}
}

func ttl(seconds int32) trait {
	return func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = new(seconds) }
}

func deadline(seconds int64) trait {
	return func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(seconds) }
}

func suspend(job *batchv1.Job) { job.Spec.Suspend = new(true) }

func parallelism(n int32) trait { return func(job *batchv1.Job) { job.Spec.Parallelism = new(n) } }

func managedBy(who string) trait { return func(job *batchv1.Job) { job.Spec.ManagedBy = new(who) } }

func controlledBy(kind string) trait {
	return func(job *batchv1.Job) {
		job.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", UID: types.UID("9"), Controller: new(true)}}
	}
}

func scheduled(job *batchv1.Job) {
	job.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: "2026-03-01T12:00:00Z"}
}

// writtenAt is an entry of managedFields.
func writtenAt(d time.Duration, subresource string) trait {
	return func(job *batchv1.Job) {
		job.ManagedFields = append(job.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(at(d)))})
	}
}

// row is a Job, and what it is when it is that old.
type row struct {
	job  *batchv1.Job
	at   time.Duration
	want string // "Zombie NeverStarted", or "Healthy"
}

func check(t *testing.T, rows map[string]row) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			finding := Classify(row.job, at(row.at), Defaults())
			got := strings.TrimSpace(string(finding.Category) + " " + string(finding.Reason))
			if got != row.want {
				t.Errorf("it is %s (%s), want %s", got, finding.Message, row.want)
			}
		})
	}
}

func TestHealthy(t *testing.T) {
	check(t, map[string]row{
		"just created":   {jobWith(), time.Second, "Healthy"},
		"running well":   {jobWith(started, pods(1, 1)), time.Hour, "Healthy"},
		"just completed": {jobWith(started, complete), time.Hour, "Healthy"},
		"nothing known of it, not even when it was created": {&batchv1.Job{}, 1000 * day, "Healthy"},
		"created in the future, by a clock that is wrong":   {jobWith(), -time.Hour, "Healthy"},
	})
	if diff := cmp.Diff(Finding{Category: Healthy}, Classify(jobWith(), noon, Defaults())); diff != "" {
		t.Errorf("a healthy Job's finding (-want +got):\n%s", diff)
	}
}

func TestAFindingTellsAllOfItself(t *testing.T) {
	job := jobWith(deletedAt(time.Hour, "a.example/hold", "foregroundDeletion"))
	want := Finding{
		Category: Suspicious, Reason: StuckTerminating, Severity: Medium, Cause: "a.example/hold", Since: at(time.Hour),
		Message: "deleted at 2026-03-01T13:00:00Z, and held by a.example/hold, foregroundDeletion",
	}
	if diff := cmp.Diff(want, Classify(job, at(90*time.Minute), Defaults())); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	want.Category, want.Severity = Zombie, High
	if diff := cmp.Diff(want, Classify(job, at(1000*time.Hour), Defaults())); diff != "" {
		t.Errorf("finding, later (-want +got):\n%s", diff)
	}
}

func TestCauses(t *testing.T) {
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"the reason of a failure long ago":     {jobWith(failedFor("BackoffLimitExceeded")), "BackoffLimitExceeded"},
		"the reason of a failure of its own":   {jobWith(failedFor("StoppedByHand"), controlledBy("CronJob")), "StoppedByHand"},
		"the reason why it is about to fail":   {jobWith(is(batchv1.JobFailureTarget, 0, "PodFailurePolicy", "")), "PodFailurePolicy"},
		"the other controller":                 {jobWith(managedBy("a.example/b")), "a.example/b"},
		"that it says what cannot be together": {jobWith(complete, failedFor("")), "ContradictoryConditions"},
		"that its mode is unknown":             {jobWith(mode("Sorted")), "UnknownCompletionMode"},
		"a finalizer, cut short":               {jobWith(deletedAt(0, strings.Repeat("x", 200))), strings.Repeat("x", MaxCause-3) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(row.job, at(100*day), Defaults()).Cause; got != row.want {
				t.Errorf("cause %q, want %q", got, row.want)
			}
		})
	}
}

func TestMessagesAreOneLineOfBoundedLength(t *testing.T) {
	for name, row := range map[string]struct{ message, want string }{
		"short":                            {"it broke", "it broke"},
		"several lines":                    {"it\r\nbroke\x00", "it  broke"},
		"just long enough":                 {strings.Repeat("é", 128), strings.Repeat("é", 128)},
		"too long, cut between characters": {strings.Repeat("é", 129), strings.Repeat("é", 126) + "…"},
		"not text":                         {"a\xff\xfeb", "a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Classify(jobWith(is(batchv1.JobFailed, 0, "X", row.message)), noon, Defaults()).Message
			if got != row.want {
				t.Errorf("message %q, want %q", got, row.want)
			}
			if len(got) > MaxMessage || !utf8.ValidString(got) {
				t.Errorf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
			}
		})
	}
}

func TestMessagesHoldNoAges(t *testing.T) {
	for reason, traits := range afflictions {
		job := jobWith(traits...)
		one, other := Classify(job, at(100*day), Defaults()), Classify(job, at(101*day), Defaults())
		if diff := cmp.Diff(one, other); diff != "" {
			t.Errorf("%s is another finding a day later:\n%s", reason, diff)
		}
	}
}

func TestClassifyDoesNotChangeTheJob(t *testing.T) {
	for reason, traits := range afflictions {
		job := jobWith(traits...)
		before := job.DeepCopy()
		Classify(job, at(100*day), Defaults())
		if diff := cmp.Diff(before, job); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
}

func TestThresholds(t *testing.T) {
	job := jobWith()
	for name, row := range map[string]struct {
		threshold Threshold
		want      Category
	}{
		"both passed":                {Threshold{time.Minute, time.Hour}, Zombie},
		"the first passed":           {Threshold{time.Minute, 3 * time.Hour}, Suspicious},
		"none passed":                {Threshold{3 * time.Hour, 4 * time.Hour}, Healthy},
		"never a zombie":             {Threshold{time.Minute, 0}, Suspicious},
		"never suspicious":           {Threshold{0, 3 * time.Hour}, Healthy},
		"a zombie without a warning": {Threshold{0, time.Hour}, Zombie},
		"the rule is off":            {Threshold{}, Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			thresholds := Defaults()
			thresholds.NeverStarted = row.threshold
			if got := Classify(job, at(2*time.Hour), thresholds).Category; got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	// What is set through the settings is all there is to set.
	thresholds, none := Defaults(), Thresholds{}
	seen := map[string]bool{}
	for _, setting := range thresholds.Settings() {
		if seen[setting.Name] || *setting.Value == 0 || setting.Usage == "" {
			t.Errorf("%s stands twice, is 0 or says nothing", setting.Name)
		}
		seen[setting.Name] = true
		*setting.Value = 0
	}
	if diff := cmp.Diff(none, thresholds); diff != "" {
		t.Errorf("not to be set (-want +got):\n%s", diff)
	}
	none.NeverStarted.Zombie = -time.Second
	if err := none.Validate(); err == nil || !strings.Contains(err.Error(), "never-started-zombie-after is -1s") {
		t.Errorf("a negative threshold: %v", err)
	}
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
}

func mode(name batchv1.CompletionMode) trait {
	return func(job *batchv1.Job) { job.Spec.CompletionMode = new(name) }
}
