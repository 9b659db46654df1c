package jobreport

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/test/assert"
)

// testTime is the creation time of the Jobs.
var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// jobTrait changes a newly created Job.
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

// testTimePlus returns the time d after testTime.
func testTimePlus(d time.Duration) time.Time { return testTime.Add(d) }

// startedJob starts the Job at its creation, which is also the last change of its status.
func startedJob(job *batchv1.Job) {
	startedAt(0)(job)
	writtenAt(0, "status")(job)
}

func startedAt(d time.Duration) jobTrait {
	return func(job *batchv1.Job) { job.Status.StartTime = new(metav1.NewTime(testTimePlus(d))) }
}

// podCounts sets the numbers of active and ready Pods.
func podCounts(active, ready int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Active, job.Status.Ready = active, new(ready) }
}

func trueConditionSince(kind batchv1.JobConditionType, d time.Duration, reason, message string) jobTrait {
	return jobCondition(kind, corev1.ConditionTrue, d, reason, message)
}

func jobCondition(kind batchv1.JobConditionType, status corev1.ConditionStatus, d time.Duration, reason, message string) jobTrait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(testTimePlus(d)),
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
		job.DeletionTimestamp, job.Finalizers = new(metav1.NewTime(testTimePlus(d))), finalizers
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

func managedByTrait(controller string) jobTrait {
	return func(job *batchv1.Job) { job.Spec.ManagedBy = new(controller) }
}

func controlledBy(kind string) jobTrait {
	return func(job *batchv1.Job) {
		job.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: apiVersions[kind], Kind: kind, Name: "owner", UID: types.UID("9"), Controller: new(true),
		}}
	}
}

var apiVersions = map[string]string{
	"CronJob": "batch/v1", "SequentialJob": "yardmaster.dev/v1alpha1", "AgenticSession": "yardmaster.dev/v1alpha1",
	"JobSet": "jobset.x-k8s.io/v1alpha2", "Workflow": "argoproj.io/v1alpha1",
}

func annotated(key, value string) jobTrait {
	return func(job *batchv1.Job) {
		if job.Annotations == nil {
			job.Annotations = map[string]string{}
		}
		job.Annotations[key] = value
	}
}

func labeled(key, value string) jobTrait {
	return func(job *batchv1.Job) {
		if job.Labels == nil {
			job.Labels = map[string]string{}
		}
		job.Labels[key] = value
	}
}

func createdByCronJob(job *batchv1.Job) {
	annotated(batchv1.CronJobScheduledTimestampAnnotation, "2026-03-01T12:00:00Z")(job)
}

// writtenAt adds an entry to managedFields.
func writtenAt(d time.Duration, subresource string) jobTrait {
	return func(job *batchv1.Job) {
		job.ManagedFields = append(job.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(testTimePlus(d)))})
	}
}

// classification is a Job, its age and the expected category and reason.
type classification struct {
	job  *batchv1.Job
	at   time.Duration
	want string // "Zombie NeverStarted", or "Healthy"
}

func checkClassification(t *testing.T, rows map[string]classification) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			finding := Classify(row.job, testTimePlus(row.at), DefaultThresholds())
			got := strings.TrimSpace(string(finding.Category) + " " + string(finding.Reason))
			if got != row.want {
				t.Errorf("got %s (%s), want %s", got, finding.Message, row.want)
			}
		})
	}
}

func TestHealthy(t *testing.T) {
	for name, row := range map[string]classification{
		"just completed": {jobWith(startedJob, completedJob), time.Hour, ""},
		"no field set, not even the creation time": {&batchv1.Job{}, 1000 * oneDay, ""},
		"a creation time in the future":            {jobWith(), -time.Hour, ""},
	} {
		assert.Equal(t, name+": finding", Finding{Category: CategoryHealthy}, Classify(row.job, testTimePlus(row.at), DefaultThresholds()))
	}
}

func TestAFindingOfADeletedJobNamesItsFinalizers(t *testing.T) {
	for finalizer, cause := range map[string]string{"foregroundDeletion": "its Pods are not terminating", "orphan": "its Pods still refer to it"} {
		got := Classify(jobWith(deletedAt(0, finalizer)), testTimePlus(time.Hour), DefaultThresholds()).Message
		if want := "deleted at 2026-03-01T12:00:00Z, waiting for finalizer " + finalizer + ": " + cause; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	job := jobWith(deletedAt(time.Hour, "a.example/hold", "foregroundDeletion"))
	want := Finding{
		Category: CategorySuspicious, Reason: ReasonStuckTerminating, Severity: SeverityMedium, Cause: "a.example/hold", Since: testTimePlus(time.Hour),
		Message: "deleted at 2026-03-01T13:00:00Z, waiting for finalizer a.example/hold, foregroundDeletion: its controller has not removed it",
	}
	assert.Equal(t, "finding", want, Classify(job, testTimePlus(90*time.Minute), DefaultThresholds()))
	want.Category, want.Severity = CategoryZombie, SeverityHigh
	assert.Equal(t, "finding, later", want, Classify(job, testTimePlus(1000*time.Hour), DefaultThresholds()))
}

func TestCauses(t *testing.T) {
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"the reason of an old failure": {jobWith(failedFor("BackoffLimitExceeded")), "BackoffLimitExceeded"},
		"a custom failure reason":      {jobWith(failedFor("StoppedByHand"), controlledBy("CronJob")), "StoppedByHand"},
		"the reason of FailureTarget":  {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "PodFailurePolicy", "")), "PodFailurePolicy"},
		"the managing controller":      {jobWith(managedByTrait("a.example/b")), "a.example/b"},
		"contradictory conditions":     {jobWith(completedJob, failedFor("")), "ContradictoryConditions"},
		"an unknown completion mode":   {jobWith(completionMode("Sorted")), "UnknownCompletionMode"},
		"a truncated finalizer":        {jobWith(deletedAt(0, strings.Repeat("x", 200))), strings.Repeat("x", MaxCauseBytes-3) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(row.job, testTimePlus(100*oneDay), DefaultThresholds()).Cause; got != row.want {
				t.Errorf("cause %q, want %q", got, row.want)
			}
		})
	}
}

func TestThresholds(t *testing.T) {
	job := jobWith()
	for name, row := range map[string]struct {
		threshold Threshold
		want      Category
	}{
		"both thresholds exceeded":                                     {Threshold{time.Minute, time.Hour}, CategoryZombie},
		"only the first threshold exceeded":                            {Threshold{time.Minute, 3 * time.Hour}, CategorySuspicious},
		"no threshold exceeded":                                        {Threshold{3 * time.Hour, 4 * time.Hour}, CategoryHealthy},
		"zombie threshold disabled":                                    {Threshold{time.Minute, 0}, CategorySuspicious},
		"suspicious threshold disabled, zombie threshold not exceeded": {Threshold{0, 3 * time.Hour}, CategoryHealthy},
		"suspicious threshold disabled, zombie threshold exceeded":     {Threshold{0, time.Hour}, CategoryZombie},
		"both thresholds disabled":                                     {Threshold{}, CategoryHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			thresholds := DefaultThresholds()
			*thresholds[ReasonNeverStarted] = row.threshold
			if got := Classify(job, testTimePlus(2*time.Hour), thresholds).Category; got != row.want {
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
