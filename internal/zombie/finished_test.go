package zombie

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnknown(t *testing.T) {
	checkClassification(t, map[string]classification{
		"complete and failed":                   {jobWith(completedJob, failedFor("X")), 0, "Suspicious Unknown"},
		"complete and about to fail":            {jobWith(completedJob, trueConditionSince(batchv1.JobFailureTarget, 0, "", "")), 0, "Suspicious Unknown"},
		"failed and about to complete":          {jobWith(failedFor("X"), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"about to fail and about to complete":   {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "", ""), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"never a zombie":                        {jobWith(completedJob, failedFor("X")), 1000 * oneDay, "Suspicious Unknown"},
		"a condition that is False counts not":  {jobWith(completedJob, jobCondition(batchv1.JobFailed, corev1.ConditionFalse, 0, "", "")), 0, "Healthy"},
		"a completion mode nobody knows":        {jobWith(completionMode("Sorted")), 0, "Suspicious Unknown"},
		"both completion modes there are":       {jobWith(completionMode(batchv1.IndexedCompletion)), 0, "Healthy"},
		"about to fail, and failed, as all are": {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "", ""), failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
	})
}

func TestStuckTerminating(t *testing.T) {
	checkClassification(t, map[string]classification{
		"it may take its time":           {jobWith(deletedAt(0, "x")), 15*time.Minute - 1, "Healthy"},
		"after a quarter of an hour":     {jobWith(deletedAt(0, "x")), 15 * time.Minute, "Suspicious StuckTerminating"},
		"after an hour":                  {jobWith(deletedAt(0, "x")), time.Hour, "Zombie StuckTerminating"},
		"without a finalizer":            {jobWith(deletedAt(0)), time.Hour, "Zombie StuckTerminating"},
		"counted from the deletion":      {jobWith(deletedAt(oneDay, "x")), oneDay + time.Minute, "Healthy"},
		"it needs not do anything else":  {jobWith(startedJob, deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
		"nor be deleted a second time":   {jobWith(completedJob, ttlAfterFinished(0), deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
		"but that it failed is still so": {jobWith(failedFor("X"), deletedAt(time.Hour)), time.Hour, "Suspicious FailedOther"},
	})
}

func TestTTLNotEnforced(t *testing.T) {
	checkClassification(t, map[string]classification{
		"its time to live is not over":         {jobWith(completedJob, ttlAfterFinished(3600)), time.Hour, "Healthy"},
		"the controller may be late":           {jobWith(completedJob, ttlAfterFinished(3600)), 2*time.Hour - 1, "Healthy"},
		"an hour late":                         {jobWith(completedJob, ttlAfterFinished(3600)), 2 * time.Hour, "Suspicious TTLNotEnforced"},
		"a day late":                           {jobWith(completedJob, ttlAfterFinished(3600)), 25 * time.Hour, "Zombie TTLNotEnforced"},
		"a failed one":                         {jobWith(failedFor("X"), ttlAfterFinished(0)), time.Hour, "Suspicious TTLNotEnforced"},
		"one of a CronJob too":                 {jobWith(completedJob, ttlAfterFinished(0), controlledBy("CronJob")), oneDay, "Zombie TTLNotEnforced"},
		"unfinished, it has no end to go by":   {jobWith(startedJob, podCounts(1, 1), ttlAfterFinished(0)), 2 * time.Hour, "Healthy"},
		"without a time to live it may stay":   {jobWith(completedJob), oneDay, "Healthy"},
		"the condition says not when it ended": {jobWith(endedWithoutTime(3*time.Hour), ttlAfterFinished(0)), 4 * time.Hour, "Suspicious TTLNotEnforced"},
	})
}

// endedWithoutTime is a Job whose condition has no time, but whose status has one.
func endedWithoutTime(d time.Duration) jobTrait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		job.Status.CompletionTime = new(metav1.NewTime(timeAfterNoon(d)))
	}
}

func TestFailed(t *testing.T) {
	checkClassification(t, map[string]classification{
		"by its back-off limit":               {jobWith(failedFor("BackoffLimitExceeded")), 0, "Suspicious BackoffLimitExceeded"},
		"by its deadline":                     {jobWith(failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
		"by its Pod failure policy":           {jobWith(failedFor("PodFailurePolicy")), 0, "Suspicious PodFailurePolicy"},
		"by too many failed indexes":          {jobWith(failedFor("MaxFailedIndexesExceeded")), 0, "Suspicious MaxFailedIndexesExceeded"},
		"by failed indexes":                   {jobWith(failedFor("FailedIndexes")), 0, "Suspicious FailedIndexes"},
		"by somebody else":                    {jobWith(failedFor("StoppedByHand")), 0, "Suspicious FailedOther"},
		"for no reason":                       {jobWith(failedFor("")), 0, "Suspicious FailedOther"},
		"for a reason that is ours alone":     {jobWith(failedFor("NeverStarted")), 0, "Suspicious FailedOther"},
		"almost a week ago":                   {jobWith(failedFor("DeadlineExceeded")), 7*oneDay - 1, "Suspicious DeadlineExceeded"},
		"a week ago":                          {jobWith(failedFor("DeadlineExceeded")), 7 * oneDay, "Zombie FailedLongAgo"},
		"a week ago, as one of a CronJob":     {jobWith(failedFor("DeadlineExceeded"), controlledBy("CronJob")), 70 * oneDay, "Suspicious DeadlineExceeded"},
		"counted from the failure":            {jobWith(trueConditionSince(batchv1.JobFailed, 6*oneDay, "X", "")), 8 * oneDay, "Suspicious FailedOther"},
		"an owner that is not the controller": {jobWith(failedFor("X"), withController), 7 * oneDay, "Zombie FailedLongAgo"},
	})
}

func withController(job *batchv1.Job) {
	job.OwnerReferences = []metav1.OwnerReference{{Kind: "Note", Name: "n"}}
}

func TestFinishedNotCleaned(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost a week":                  {jobWith(completedJob), 7*oneDay - 1, "Healthy"},
		"for a week":                         {jobWith(completedJob), 7 * oneDay, "Suspicious FinishedNotCleaned"},
		"never a zombie":                     {jobWith(completedJob), 1000 * oneDay, "Suspicious FinishedNotCleaned"},
		"its time to live will do":           {jobWith(completedJob, ttlAfterFinished(30*24*3600)), 7 * oneDay, "Healthy"},
		"its CronJob will do":                {jobWith(completedJob, controlledBy("CronJob")), 1000 * oneDay, "Healthy"},
		"a failed Job is reported as failed": {jobWith(failedFor("X")), 6 * oneDay, "Suspicious FailedOther"},
	})
	if got := Classify(jobWith(completedJob), timeAfterNoon(8*oneDay), DefaultThresholds()).Severity; got != SeverityLow {
		t.Errorf("severity %s, want %s", got, SeverityLow)
	}
}

func TestInterimStuck(t *testing.T) {
	failing := trueConditionSince(batchv1.JobFailureTarget, time.Hour, "X", "")
	completing := trueConditionSince(batchv1.JobSuccessCriteriaMet, time.Hour, "X", "")
	checkClassification(t, map[string]classification{
		"about to fail, without Pods":            {jobWith(startedJob, failing), time.Hour + 30*time.Minute - 1, "Healthy"},
		"about to fail for half an hour":         {jobWith(startedJob, failing), 90 * time.Minute, "Suspicious FailureTargetStuck"},
		"about to fail for six hours":            {jobWith(startedJob, failing), 7 * time.Hour, "Zombie FailureTargetStuck"},
		"about to complete for half an hour":     {jobWith(startedJob, completing), 90 * time.Minute, "Suspicious SuccessCriteriaStuck"},
		"about to complete for six hours":        {jobWith(startedJob, completing), 7 * time.Hour, "Zombie SuccessCriteriaStuck"},
		"about to fail, and done with it":        {jobWith(failing, trueConditionSince(batchv1.JobFailed, 2*time.Hour, "X", "")), 8 * time.Hour, "Suspicious FailedOther"},
		"about to complete, and done with it":    {jobWith(completing, completedJob), 8 * time.Hour, "Healthy"},
		"in the hands of another controller too": {jobWith(failing, managedByTrait("a.example/b")), 7 * time.Hour, "Zombie FailureTargetStuck"},
	})
}

func terminatingPods(n int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Terminating = new(n) }
}
