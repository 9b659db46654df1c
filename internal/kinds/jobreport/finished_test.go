package jobreport

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestUnknown(t *testing.T) {
	checkClassification(t, map[string]classification{
		"complete and failed":                      {jobWith(completedJob, failedFor("X")), 0, "Suspicious Unknown"},
		"complete with FailureTarget":              {jobWith(completedJob, trueConditionSince(batchv1.JobFailureTarget, 0, "", "")), 0, "Suspicious Unknown"},
		"failed with SuccessCriteriaMet":           {jobWith(failedFor("X"), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"FailureTarget and SuccessCriteriaMet":     {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "", ""), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"never a zombie":                           {jobWith(completedJob, failedFor("X")), 1000 * oneDay, "Suspicious Unknown"},
		"a condition with status False is ignored": {jobWith(completedJob, jobCondition(batchv1.JobFailed, corev1.ConditionFalse, 0, "", "")), 0, "Healthy"},
		"an unknown completion mode":               {jobWith(completionMode("Sorted")), 0, "Suspicious Unknown"},
		"a known completion mode":                  {jobWith(completionMode(batchv1.IndexedCompletion)), 0, "Healthy"},
		"FailureTarget and failed":                 {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "", ""), failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
	})
}

func TestStuckTerminating(t *testing.T) {
	checkClassification(t, map[string]classification{
		"deleted less than 15 minutes ago":          {jobWith(deletedAt(0, "x")), 15*time.Minute - 1, "Healthy"},
		"deleted 15 minutes ago":                    {jobWith(deletedAt(0, "x")), 15 * time.Minute, "Suspicious StuckTerminating"},
		"deleted an hour ago":                       {jobWith(deletedAt(0, "x")), time.Hour, "Zombie StuckTerminating"},
		"deleted an hour ago, no finalizer":         {jobWith(deletedAt(0)), time.Hour, "Zombie StuckTerminating"},
		"the age counts from the deletion":          {jobWith(deletedAt(oneDay, "x")), oneDay + time.Minute, "Healthy"},
		"other rules do not apply to a deleted Job": {jobWith(startedJob, deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
		"the TTL does not apply to a deleted Job":   {jobWith(completedJob, ttlAfterFinished(0), deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
		"a deleted Job that failed":                 {jobWith(failedFor("X"), deletedAt(time.Hour)), time.Hour, "Suspicious FailedOther"},
	})
}

func TestTTLNotEnforced(t *testing.T) {
	checkClassification(t, map[string]classification{
		"the TTL has not expired": {jobWith(completedJob, ttlAfterFinished(3600)), time.Hour, "Healthy"},
		"less than an hour late":  {jobWith(completedJob, ttlAfterFinished(3600)), 2*time.Hour - 1, "Healthy"},
		"an hour late":            {jobWith(completedJob, ttlAfterFinished(3600)), 2 * time.Hour, "Suspicious TTLNotEnforced"},
		"a day late":              {jobWith(completedJob, ttlAfterFinished(3600)), 25 * time.Hour, "Zombie TTLNotEnforced"},
		"a failed Job":            {jobWith(failedFor("X"), ttlAfterFinished(0)), time.Hour, "Suspicious TTLNotEnforced"},
		"a Job of a CronJob":      {jobWith(completedJob, ttlAfterFinished(0), controlledBy("CronJob")), oneDay, "Zombie TTLNotEnforced"},
		"an unfinished Job":       {jobWith(startedJob, podCounts(1, 1), ttlAfterFinished(0)), 2 * time.Hour, "Healthy"},
		"no TTL":                  {jobWith(completedJob), oneDay, "Healthy"},
		"the finish time comes from the status if the condition has none": {jobWith(completionTimeOnly(3*time.Hour), ttlAfterFinished(0)), 4 * time.Hour, "Suspicious TTLNotEnforced"},
	})
}

// completionTimeOnly sets a completion time in the status and a condition without a time.
func completionTimeOnly(d time.Duration) jobTrait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		job.Status.CompletionTime = new(metav1.NewTime(testTimePlus(d)))
	}
}

func TestFailed(t *testing.T) {
	checkClassification(t, map[string]classification{
		"backoff limit exceeded":               {jobWith(failedFor("BackoffLimitExceeded")), 0, "Suspicious BackoffLimitExceeded"},
		"deadline exceeded":                    {jobWith(failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
		"Pod failure policy":                   {jobWith(failedFor("PodFailurePolicy")), 0, "Suspicious PodFailurePolicy"},
		"too many failed indexes":              {jobWith(failedFor("MaxFailedIndexesExceeded")), 0, "Suspicious MaxFailedIndexesExceeded"},
		"failed indexes":                       {jobWith(failedFor("FailedIndexes")), 0, "Suspicious FailedIndexes"},
		"a custom reason":                      {jobWith(failedFor("StoppedByHand")), 0, "Suspicious FailedOther"},
		"no reason":                            {jobWith(failedFor("")), 0, "Suspicious FailedOther"},
		"a reason equal to the name of a rule": {jobWith(failedFor("NeverStarted")), 0, "Suspicious FailedOther"},
		"less than a week ago":                 {jobWith(failedFor("DeadlineExceeded")), 7*oneDay - 1, "Suspicious DeadlineExceeded"},
		"a week ago":                           {jobWith(failedFor("DeadlineExceeded")), 7 * oneDay, "Zombie FailedLongAgo"},
		"long ago, controlled by a CronJob":    {jobWith(failedFor("DeadlineExceeded"), controlledBy("CronJob")), 70 * oneDay, "Suspicious DeadlineExceeded"},
		"the age counts from the failure":      {jobWith(trueConditionSince(batchv1.JobFailed, 6*oneDay, "X", "")), 8 * oneDay, "Suspicious FailedOther"},
		"an owner that is not a controller":    {jobWith(failedFor("X"), withNonControllerOwner), 7 * oneDay, "Zombie FailedLongAgo"},
		"long ago, but its TTL will delete it": {jobWith(failedFor("X"), ttlAfterFinished(30*24*3600)), 29 * oneDay, "Suspicious FailedOther"},
		"a step whose failure is tolerated":    {jobWith(failedFor("X"), controlledBy("SequentialJob"), onFailure("Continue")), 0, "Healthy"},
		"a step whose failure stops the run":   {jobWith(failedFor("X"), controlledBy("SequentialJob"), onFailure("Stop")), 0, "Suspicious FailedOther"},
		"a step with unreadable options":       {jobWith(failedFor("X"), controlledBy("SequentialJob"), annotated(v1alpha1.AnnotationStepOptions, "{")), 0, "Suspicious FailedOther"},
		"options of a step on another Job":     {jobWith(failedFor("X"), onFailure("Continue")), 0, "Suspicious FailedOther"},
	})
}

// onFailure sets the options with which a SequentialJob created the Job of a step.
func onFailure(action string) jobTrait {
	return annotated(v1alpha1.AnnotationStepOptions, `{"onFailure":"`+action+`"}`)
}

func TestAnOldFailureIsLessImportantThanANewOne(t *testing.T) {
	job := jobWith(failedFor("X"))
	if got := Classify(job, testTimePlus(time.Hour), DefaultThresholds()).Severity; got != SeverityMedium {
		t.Errorf("a new failure has severity %s, want %s", got, SeverityMedium)
	}
	if got := Classify(job, testTimePlus(8*oneDay), DefaultThresholds()).Severity; got != SeverityLow {
		t.Errorf("an old failure has severity %s, want %s", got, SeverityLow)
	}
}

func TestTheMessageOfAFailureCountsPods(t *testing.T) {
	backoffLimit := func(n int32) jobTrait { return func(job *batchv1.Job) { job.Spec.BackoffLimit = &n } }
	completions := func(n int32) jobTrait { return func(job *batchv1.Job) { job.Spec.Completions = &n } }
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"backoff limit":   {jobWith(failedFor("BackoffLimitExceeded"), backoffLimit(6), finishedPods(0, 7)), "7 failed, backoffLimit 6: it broke"},
		"completions":     {jobWith(failedFor("FailedIndexes"), completions(5), finishedPods(3, 2)), "3 of 5 completions, 2 failed: it broke"},
		"nothing counted": {jobWith(failedFor("DeadlineExceeded")), "it broke"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(row.job, testTime, DefaultThresholds()).Message; got != row.want {
				t.Errorf("message %q, want %q", got, row.want)
			}
		})
	}
}

func withNonControllerOwner(job *batchv1.Job) {
	job.OwnerReferences = []metav1.OwnerReference{{Kind: "Note", Name: "n"}}
}

func TestFinishedNotCleaned(t *testing.T) {
	checkClassification(t, map[string]classification{
		"less than a week":                   {jobWith(completedJob), 7*oneDay - 1, "Healthy"},
		"a week":                             {jobWith(completedJob), 7 * oneDay, "Suspicious FinishedNotCleaned"},
		"never a zombie":                     {jobWith(completedJob), 1000 * oneDay, "Suspicious FinishedNotCleaned"},
		"the TTL controller will delete it":  {jobWith(completedJob, ttlAfterFinished(30*24*3600)), 7 * oneDay, "Healthy"},
		"its CronJob will delete it":         {jobWith(completedJob, controlledBy("CronJob")), 1000 * oneDay, "Healthy"},
		"an orphan is reported as an orphan": {jobWith(completedJob, createdByCronJob), 1000 * oneDay, "Suspicious Orphaned"},
		"a failed Job is reported as failed": {jobWith(failedFor("X")), 6 * oneDay, "Suspicious FailedOther"},
	})
	if got := Classify(jobWith(completedJob), testTimePlus(8*oneDay), DefaultThresholds()).Severity; got != SeverityLow {
		t.Errorf("severity %s, want %s", got, SeverityLow)
	}
}

func TestTargetConditionStuck(t *testing.T) {
	failing := trueConditionSince(batchv1.JobFailureTarget, time.Hour, "X", "")
	completing := trueConditionSince(batchv1.JobSuccessCriteriaMet, time.Hour, "X", "")
	checkClassification(t, map[string]classification{
		"FailureTarget for less than half an hour": {jobWith(startedJob, failing), time.Hour + 30*time.Minute - 1, "Healthy"},
		"FailureTarget for half an hour":           {jobWith(startedJob, failing), 90 * time.Minute, "Suspicious FailureTargetStuck"},
		"FailureTarget for six hours":              {jobWith(startedJob, failing), 7 * time.Hour, "Zombie FailureTargetStuck"},
		"SuccessCriteriaMet for half an hour":      {jobWith(startedJob, completing), 90 * time.Minute, "Suspicious SuccessCriteriaStuck"},
		"SuccessCriteriaMet for six hours":         {jobWith(startedJob, completing), 7 * time.Hour, "Zombie SuccessCriteriaStuck"},
		"FailureTarget, then failed":               {jobWith(failing, trueConditionSince(batchv1.JobFailed, 2*time.Hour, "X", "")), 8 * time.Hour, "Suspicious FailedOther"},
		"SuccessCriteriaMet, then complete":        {jobWith(completing, completedJob), 8 * time.Hour, "Healthy"},
		"managed by another controller":            {jobWith(failing, managedByTrait("a.example/b")), 7 * time.Hour, "Zombie FailureTargetStuck"},
	})
}

func TestTheMessageOfADeletedJobSaysWhatItWaitsFor(t *testing.T) {
	for finalizer, want := range map[string]string{
		"foregroundDeletion": "deleted at 2026-03-01T12:00:00Z, waiting for finalizer foregroundDeletion: its Pods are not terminating",
		"orphan":             "deleted at 2026-03-01T12:00:00Z, waiting for finalizer orphan: its Pods still refer to it",
		"a.example/hold":     "deleted at 2026-03-01T12:00:00Z, waiting for finalizer a.example/hold: its controller has not removed it",
	} {
		if got := Classify(jobWith(deletedAt(0, finalizer)), testTimePlus(time.Hour), DefaultThresholds()).Message; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

func terminatingPods(n int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Terminating = new(n) }
}
