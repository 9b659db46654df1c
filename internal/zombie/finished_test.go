package zombie

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnknown(t *testing.T) {
	check(t, map[string]row{
		"complete and failed":                   {jobWith(complete, failedFor("X")), 0, "Suspicious Unknown"},
		"complete and about to fail":            {jobWith(complete, is(batchv1.JobFailureTarget, 0, "", "")), 0, "Suspicious Unknown"},
		"failed and about to complete":          {jobWith(failedFor("X"), is(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"about to fail and about to complete":   {jobWith(is(batchv1.JobFailureTarget, 0, "", ""), is(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"never a zombie":                        {jobWith(complete, failedFor("X")), 1000 * day, "Suspicious Unknown"},
		"a condition that is False counts not":  {jobWith(complete, condition(batchv1.JobFailed, corev1.ConditionFalse, 0, "", "")), 0, "Healthy"},
		"a completion mode nobody knows":        {jobWith(mode("Sorted")), 0, "Suspicious Unknown"},
		"both completion modes there are":       {jobWith(mode(batchv1.IndexedCompletion)), 0, "Healthy"},
		"about to fail, and failed, as all are": {jobWith(is(batchv1.JobFailureTarget, 0, "", ""), failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
	})
}

func TestStuckTerminating(t *testing.T) {
	check(t, map[string]row{
		"it may take its time":           {jobWith(deletedAt(0, "x")), 15*time.Minute - 1, "Healthy"},
		"after a quarter of an hour":     {jobWith(deletedAt(0, "x")), 15 * time.Minute, "Suspicious StuckTerminating"},
		"after an hour":                  {jobWith(deletedAt(0, "x")), time.Hour, "Zombie StuckTerminating"},
		"without a finalizer":            {jobWith(deletedAt(0)), time.Hour, "Zombie StuckTerminating"},
		"counted from the deletion":      {jobWith(deletedAt(day, "x")), day + time.Minute, "Healthy"},
		"it needs not do anything else":  {jobWith(started, deletedAt(2*day)), 2*day + time.Minute, "Healthy"},
		"nor be deleted a second time":   {jobWith(complete, ttl(0), deletedAt(2*day)), 2*day + time.Minute, "Healthy"},
		"but that it failed is still so": {jobWith(failedFor("X"), deletedAt(time.Hour)), time.Hour, "Suspicious FailedOther"},
	})
}

func TestTTLNotEnforced(t *testing.T) {
	check(t, map[string]row{
		"its time to live is not over":         {jobWith(complete, ttl(3600)), time.Hour, "Healthy"},
		"the controller may be late":           {jobWith(complete, ttl(3600)), 2*time.Hour - 1, "Healthy"},
		"an hour late":                         {jobWith(complete, ttl(3600)), 2 * time.Hour, "Suspicious TTLNotEnforced"},
		"a day late":                           {jobWith(complete, ttl(3600)), 25 * time.Hour, "Zombie TTLNotEnforced"},
		"a failed one":                         {jobWith(failedFor("X"), ttl(0)), time.Hour, "Suspicious TTLNotEnforced"},
		"one of a CronJob too":                 {jobWith(complete, ttl(0), controlledBy("CronJob")), day, "Zombie TTLNotEnforced"},
		"unfinished, it has no end to go by":   {jobWith(started, pods(1, 1), ttl(0)), 2 * time.Hour, "Healthy"},
		"without a time to live it may stay":   {jobWith(complete), day, "Healthy"},
		"the condition says not when it ended": {jobWith(endedWithoutTime(3*time.Hour), ttl(0)), 4 * time.Hour, "Suspicious TTLNotEnforced"},
	})
}

// endedWithoutTime is a Job whose condition has no time, but whose status has one.
func endedWithoutTime(d time.Duration) trait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		job.Status.CompletionTime = new(metav1.NewTime(at(d)))
	}
}

func TestFailed(t *testing.T) {
	check(t, map[string]row{
		"by its back-off limit":               {jobWith(failedFor("BackoffLimitExceeded")), 0, "Suspicious BackoffLimitExceeded"},
		"by its deadline":                     {jobWith(failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
		"by its Pod failure policy":           {jobWith(failedFor("PodFailurePolicy")), 0, "Suspicious PodFailurePolicy"},
		"by too many failed indexes":          {jobWith(failedFor("MaxFailedIndexesExceeded")), 0, "Suspicious MaxFailedIndexesExceeded"},
		"by failed indexes":                   {jobWith(failedFor("FailedIndexes")), 0, "Suspicious FailedIndexes"},
		"by somebody else":                    {jobWith(failedFor("StoppedByHand")), 0, "Suspicious FailedOther"},
		"for no reason":                       {jobWith(failedFor("")), 0, "Suspicious FailedOther"},
		"for a reason that is ours alone":     {jobWith(failedFor("NeverStarted")), 0, "Suspicious FailedOther"},
		"almost a week ago":                   {jobWith(failedFor("DeadlineExceeded")), 7*day - 1, "Suspicious DeadlineExceeded"},
		"a week ago":                          {jobWith(failedFor("DeadlineExceeded")), 7 * day, "Zombie FailedLongAgo"},
		"a week ago, as one of a CronJob":     {jobWith(failedFor("DeadlineExceeded"), controlledBy("CronJob")), 70 * day, "Suspicious DeadlineExceeded"},
		"counted from the failure":            {jobWith(is(batchv1.JobFailed, 6*day, "X", "")), 8 * day, "Suspicious FailedOther"},
		"an owner that is not the controller": {jobWith(failedFor("X"), owned), 7 * day, "Zombie FailedLongAgo"},
	})
}

func owned(job *batchv1.Job) {
	job.OwnerReferences = []metav1.OwnerReference{{Kind: "Note", Name: "n"}}
}

func TestFinishedNotCleaned(t *testing.T) {
	check(t, map[string]row{
		"for almost a week":          {jobWith(complete), 7*day - 1, "Healthy"},
		"for a week":                 {jobWith(complete), 7 * day, "Suspicious FinishedNotCleaned"},
		"never a zombie":             {jobWith(complete), 1000 * day, "Suspicious FinishedNotCleaned"},
		"its time to live will do":   {jobWith(complete, ttl(30*24*3600)), 7 * day, "Healthy"},
		"its CronJob will do":        {jobWith(complete, controlledBy("CronJob")), 1000 * day, "Healthy"},
		"a failed one is told as so": {jobWith(failedFor("X")), 6 * day, "Suspicious FailedOther"},
	})
	if got := Classify(jobWith(complete), at(8*day), Defaults()).Severity; got != Low {
		t.Errorf("severity %s, want %s", got, Low)
	}
}

func TestInterimStuck(t *testing.T) {
	failing := is(batchv1.JobFailureTarget, time.Hour, "X", "")
	completing := is(batchv1.JobSuccessCriteriaMet, time.Hour, "X", "")
	check(t, map[string]row{
		"about to fail, without Pods":            {jobWith(started, failing), time.Hour + 30*time.Minute - 1, "Healthy"},
		"about to fail for half an hour":         {jobWith(started, failing), 90 * time.Minute, "Suspicious FailureTargetStuck"},
		"about to fail for six hours":            {jobWith(started, failing), 7 * time.Hour, "Zombie FailureTargetStuck"},
		"about to complete for half an hour":     {jobWith(started, completing), 90 * time.Minute, "Suspicious SuccessCriteriaStuck"},
		"about to complete for six hours":        {jobWith(started, completing), 7 * time.Hour, "Zombie SuccessCriteriaStuck"},
		"about to fail, and done with it":        {jobWith(failing, is(batchv1.JobFailed, 2*time.Hour, "X", "")), 8 * time.Hour, "Suspicious FailedOther"},
		"about to complete, and done with it":    {jobWith(completing, complete), 8 * time.Hour, "Healthy"},
		"in the hands of another controller too": {jobWith(failing, managedBy("a.example/b")), 7 * time.Hour, "Zombie FailureTargetStuck"},
	})
}

func terminating(n int32) trait { return func(job *batchv1.Job) { job.Status.Terminating = new(n) } }
