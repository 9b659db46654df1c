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

// testTime is when the tests' Jobs are created.
var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// jobTrait changes a Job that was just created.
type jobTrait func(*batchv1.Job)

func jobWith(traits ...jobTrait) *batchv1.Job {
	job := &batchv1.Job{}
	job.Name, job.Namespace, job.UID = "job", "ns", "1"
	job.CreationTimestamp = metav1.NewTime(testTime)
	for _, trait := range traits {
		trait(job)
	}
	return job
}

// timeAfterNoon is a time that long after noon.
func timeAfterNoon(d time.Duration) time.Time { return testTime.Add(d) }

func startedJob(job *batchv1.Job) { job.Status.StartTime = new(metav1.NewTime(testTime)) }

func startedAt(d time.Duration) jobTrait {
	return func(job *batchv1.Job) { job.Status.StartTime = new(metav1.NewTime(timeAfterNoon(d))) }
}

// podCounts are how many are active and ready.
func podCounts(active, ready int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Active, job.Status.Ready = active, new(ready) }
}

func trueConditionSince(kind batchv1.JobConditionType, d time.Duration, reason, message string) jobTrait {
	return jobCondition(kind, corev1.ConditionTrue, d, reason, message)
}

func jobCondition(kind batchv1.JobConditionType, status corev1.ConditionStatus, d time.Duration, reason, message string) jobTrait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(timeAfterNoon(d)),
		})
	}
}

func completedJob(job *batchv1.Job) {
	trueConditionSince(batchv1.JobComplete, 0, "CompletionsReached", "done")(job)
}

func failedFor(reason string) jobTrait {
	return trueConditionSince(batchv1.JobFailed, 0, reason, "it broke")
}

func deletedAt(d time.Duration, finalizers ...string) jobTrait {
	return func(job *batchv1.Job) {
		job.DeletionTimestamp, job.Finalizers = new(metav1.NewTime(timeAfterNoon(d))), finalizers
	}
}

func ttlAfterFinished(seconds int32) jobTrait {
	return func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = new(seconds) }
}

func activeDeadline(seconds int64) jobTrait {
	return func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(seconds) }
}

func suspendedJob(job *batchv1.Job) { job.Spec.Suspend = new(true) }

func parallelism(n int32) jobTrait { return func(job *batchv1.Job) { job.Spec.Parallelism = new(n) } }

func managedByTrait(who string) jobTrait {
	return func(job *batchv1.Job) { job.Spec.ManagedBy = new(who) }
}

func controlledBy(kind string) jobTrait {
	return func(job *batchv1.Job) {
		job.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", UID: types.UID("9"), Controller: new(true)}}
	}
}

func createdByCronJob(job *batchv1.Job) {
	job.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: "2026-03-01T12:00:00Z"}
}

// writtenAt is an entry of managedFields.
func writtenAt(d time.Duration, subresource string) jobTrait {
	return func(job *batchv1.Job) {
		job.ManagedFields = append(job.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(timeAfterNoon(d)))})
	}
}

// classification is a Job, and what it is when it is that old.
type classification struct {
	job  *batchv1.Job
	at   time.Duration
	want string // "Zombie NeverStarted", or "Healthy"
}

func checkClassification(t *testing.T, rows map[string]classification) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			finding := Classify(row.job, timeAfterNoon(row.at), DefaultThresholds())
			got := strings.TrimSpace(string(finding.Category) + " " + string(finding.Reason))
			if got != row.want {
				t.Errorf("it is %s (%s), want %s", got, finding.Message, row.want)
			}
		})
	}
}

func TestHealthy(t *testing.T) {
	checkClassification(t, map[string]classification{
		"just created":   {jobWith(), time.Second, "Healthy"},
		"running well":   {jobWith(startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
		"just completed": {jobWith(startedJob, completedJob), time.Hour, "Healthy"},
		"nothing known of it, not even when it was created": {&batchv1.Job{}, 1000 * oneDay, "Healthy"},
		"created in the future, by a clock that is wrong":   {jobWith(), -time.Hour, "Healthy"},
	})
	if diff := cmp.Diff(Finding{Category: CategoryHealthy}, Classify(jobWith(), testTime, DefaultThresholds())); diff != "" {
		t.Errorf("a healthy Job's finding (-want +got):\n%s", diff)
	}
}

func TestAFindingOfADeletedJobNamesItsFinalizers(t *testing.T) {
	job := jobWith(deletedAt(time.Hour, "a.example/hold", "foregroundDeletion"))
	want := Finding{
		Category: CategorySuspicious, Reason: ReasonStuckTerminating, Severity: SeverityMedium, Cause: "a.example/hold", Since: timeAfterNoon(time.Hour),
		Message: "deleted at 2026-03-01T13:00:00Z but still exists; finalizers: a.example/hold, foregroundDeletion",
	}
	if diff := cmp.Diff(want, Classify(job, timeAfterNoon(90*time.Minute), DefaultThresholds())); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	want.Category, want.Severity = CategoryZombie, SeverityHigh
	if diff := cmp.Diff(want, Classify(job, timeAfterNoon(1000*time.Hour), DefaultThresholds())); diff != "" {
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
		"the reason why it is about to fail":   {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "PodFailurePolicy", "")), "PodFailurePolicy"},
		"the other controller":                 {jobWith(managedByTrait("a.example/b")), "a.example/b"},
		"that it says what cannot be together": {jobWith(completedJob, failedFor("")), "ContradictoryConditions"},
		"that its mode is unknown":             {jobWith(completionMode("Sorted")), "UnknownCompletionMode"},
		"a finalizer, cut short":               {jobWith(deletedAt(0, strings.Repeat("x", 200))), strings.Repeat("x", MaxCauseBytes-3) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(row.job, timeAfterNoon(100*oneDay), DefaultThresholds()).Cause; got != row.want {
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
			got := Classify(jobWith(trueConditionSince(batchv1.JobFailed, 0, "X", row.message)), testTime, DefaultThresholds()).Message
			if got != row.want {
				t.Errorf("message %q, want %q", got, row.want)
			}
			if len(got) > MaxMessageBytes || !utf8.ValidString(got) {
				t.Errorf("%d bytes, valid: %t", len(got), utf8.ValidString(got))
			}
		})
	}
}

func TestMessagesHoldNoAges(t *testing.T) {
	for reason, traits := range traitsByReason {
		job := jobWith(traits...)
		one, other := Classify(job, timeAfterNoon(100*oneDay), DefaultThresholds()), Classify(job, timeAfterNoon(101*oneDay), DefaultThresholds())
		if diff := cmp.Diff(one, other); diff != "" {
			t.Errorf("%s is another finding a day later:\n%s", reason, diff)
		}
	}
}

func TestClassifyDoesNotChangeTheJob(t *testing.T) {
	for reason, traits := range traitsByReason {
		job := jobWith(traits...)
		before := job.DeepCopy()
		Classify(job, timeAfterNoon(100*oneDay), DefaultThresholds())
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
		"both passed":                {Threshold{time.Minute, time.Hour}, CategoryZombie},
		"the first passed":           {Threshold{time.Minute, 3 * time.Hour}, CategorySuspicious},
		"none passed":                {Threshold{3 * time.Hour, 4 * time.Hour}, CategoryHealthy},
		"never a zombie":             {Threshold{time.Minute, 0}, CategorySuspicious},
		"never suspicious":           {Threshold{0, 3 * time.Hour}, CategoryHealthy},
		"a zombie without a warning": {Threshold{0, time.Hour}, CategoryZombie},
		"the rule is off":            {Threshold{}, CategoryHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			thresholds := DefaultThresholds()
			*thresholds[ReasonNeverStarted] = row.threshold
			if got := Classify(job, timeAfterNoon(2*time.Hour), thresholds).Category; got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestSettingsCoverEveryDefaultThreshold(t *testing.T) {
	thresholds := DefaultThresholds()
	names := map[string]bool{}
	for _, setting := range thresholds.Settings() {
		if names[setting.Name] {
			t.Errorf("%s exists twice", setting.Name)
		}
		if *setting.Value == 0 {
			t.Errorf("%s has no default", setting.Name)
		}
		names[setting.Name] = true
		*setting.Value = 0
	}
	for reason, threshold := range thresholds {
		if *threshold != (Threshold{}) {
			t.Errorf("%s cannot be set completely: %+v", reason, threshold)
		}
	}
}

func TestFlagUsageDescribesTheRule(t *testing.T) {
	want := "Report a Job as Zombie that has no startTime, this long after its creation or resumption. 0 means never."
	for _, setting := range DefaultThresholds().Settings() {
		if setting.Name == "never-started-zombie-after" && setting.Usage != want {
			t.Errorf("usage %q, want %q", setting.Usage, want)
		}
	}
}

func TestNegativeThresholdsAreInvalid(t *testing.T) {
	thresholds := DefaultThresholds()
	if err := thresholds.Validate(); err != nil {
		t.Errorf("the defaults are invalid: %v", err)
	}
	thresholds[ReasonNeverStarted].Zombie = -time.Second
	if err := thresholds.Validate(); err == nil || !strings.Contains(err.Error(), "never-started-zombie-after is -1s") {
		t.Errorf("a negative threshold returns %v", err)
	}
}

func completionMode(name batchv1.CompletionMode) jobTrait {
	return func(job *batchv1.Job) { job.Spec.CompletionMode = new(name) }
}
