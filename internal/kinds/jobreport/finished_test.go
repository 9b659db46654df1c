package jobreport

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestUnknown(t *testing.T) {
	checkClassification(t, map[string]classification{
		"complete with FailureTarget":              {jobWith(completedJob, trueConditionSince(batchv1.JobFailureTarget, 0, "", "")), 0, "Suspicious Unknown"},
		"failed with SuccessCriteriaMet":           {jobWith(failedFor("X"), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"FailureTarget and SuccessCriteriaMet":     {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "", ""), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")), 0, "Suspicious Unknown"},
		"a condition with status False is ignored": {jobWith(completedJob, jobCondition(batchv1.JobFailed, corev1.ConditionFalse, 0, "", "")), 0, "Healthy"},
		"an unknown completion mode":               {jobWith(completionMode("Sorted")), 0, "Suspicious Unknown"},
		"FailureTarget and failed":                 {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "", ""), failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
	})
}

func TestStuckTerminating(t *testing.T) {
	checkClassification(t, map[string]classification{
		"deleted an hour ago, no finalizer":         {jobWith(deletedAt(0)), time.Hour, "Zombie StuckTerminating"},
		"the age counts from the deletion":          {jobWith(deletedAt(oneDay, "x")), oneDay + time.Minute, "Healthy"},
		"other rules do not apply to a deleted Job": {jobWith(startedJob, deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
		"the TTL does not apply to a deleted Job":   {jobWith(completedJob, ttlAfterFinished(0), deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
		"a deleted Job that failed":                 {jobWith(failedFor("X"), deletedAt(time.Hour)), time.Hour, "Suspicious FailedOther"},
	})
}

func TestTTLNotEnforced(t *testing.T) {
	checkClassification(t, map[string]classification{
		"a failed Job":       {jobWith(failedFor("X"), ttlAfterFinished(0)), time.Hour, "Suspicious TTLNotEnforced"},
		"a Job of a CronJob": {jobWith(completedJob, ttlAfterFinished(0), controlledBy("CronJob")), oneDay, "Zombie TTLNotEnforced"},
		"an unfinished Job":  {jobWith(startedJob, podCounts(1, 1), ttlAfterFinished(0)), 2 * time.Hour, "Healthy"},
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
		"no reason":                            {jobWith(failedFor("")), 0, "Suspicious FailedOther"},
		"a reason equal to the name of a rule": {jobWith(failedFor("NeverStarted")), 0, "Suspicious FailedOther"},
		"less than a week ago":                 {jobWith(failedFor("DeadlineExceeded")), 7*oneDay - 1, "Suspicious DeadlineExceeded"},
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

func TestTheMessageOfAFailureIsOneLineAndCountsPods(t *testing.T) {
	backoffLimit := func(n int32) jobTrait { return func(job *batchv1.Job) { job.Spec.BackoffLimit = &n } }
	completions := func(n int32) jobTrait { return func(job *batchv1.Job) { job.Spec.Completions = &n } }
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"backoff limit":   {jobWith(failedFor("BackoffLimitExceeded"), backoffLimit(6), finishedPods(0, 7)), "7 failed, backoffLimit 6: it broke"},
		"completions":     {jobWith(failedFor("FailedIndexes"), completions(5), finishedPods(3, 2)), "3 of 5 completions, 2 failed: it broke"},
		"nothing counted": {jobWith(failedFor("DeadlineExceeded")), "it broke"},
		"several lines":   {jobWith(trueConditionSince(batchv1.JobFailed, 0, "X", "it\r\nbroke\x00")), "it  broke"},
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
		"the TTL controller will delete it":  {jobWith(completedJob, ttlAfterFinished(30*24*3600)), 7 * oneDay, "Healthy"},
		"its CronJob will delete it":         {jobWith(completedJob, controlledBy("CronJob")), 1000 * oneDay, "Healthy"},
		"an orphan is reported as an orphan": {jobWith(completedJob, createdByCronJob), 1000 * oneDay, "Suspicious Orphaned"},
	})
	if got := Classify(jobWith(completedJob), testTimePlus(8*oneDay), DefaultThresholds()).Severity; got != SeverityLow {
		t.Errorf("severity %s, want %s", got, SeverityLow)
	}
}

func TestTargetConditionStuck(t *testing.T) {
	failing := trueConditionSince(batchv1.JobFailureTarget, time.Hour, "X", "")
	completing := trueConditionSince(batchv1.JobSuccessCriteriaMet, time.Hour, "X", "")
	checkClassification(t, map[string]classification{
		"FailureTarget, then failed":        {jobWith(failing, trueConditionSince(batchv1.JobFailed, 2*time.Hour, "X", "")), 8 * time.Hour, "Suspicious FailedOther"},
		"SuccessCriteriaMet, then complete": {jobWith(completing, completedJob), 8 * time.Hour, "Healthy"},
		"managed by another controller":     {jobWith(failing, managedByTrait("a.example/b")), 7 * time.Hour, "Zombie FailureTargetStuck"},
	})
}

func terminatingPods(n int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Terminating = new(n) }
}

func TestExternallyManaged(t *testing.T) {
	checkClassification(t, map[string]classification{
		"finished":                           {jobWith(managedByTrait("a.example/b"), completedJob), 2 * oneDay, "Healthy"},
		"managedBy names the Job controller": {jobWith(managedByTrait(batchv1.JobControllerName)), oneDay, "Zombie NeverStarted"},
		"other rules do not apply":           {jobWith(managedByTrait("a.example/b"), suspendedJob, startedJob, parallelism(0), activeDeadline(1)), oneDay - 1, "Healthy"},
	})
}

func TestSuspendedTooLong(t *testing.T) {
	suspended := trueConditionSince(batchv1.JobSuspended, oneDay, "JobSuspended", "")
	checkClassification(t, map[string]classification{
		"without a condition the age counts from the creation":   {jobWith(suspendedJob), 7 * oneDay, "Suspicious SuspendedTooLong"},
		"just suspended, not yet observed by the Job controller": {jobWith(suspendedJob, startedJob, writtenAt(40*oneDay, "")), 40*oneDay + time.Second, "Healthy"},
		"resumed earlier and just suspended again": {
			jobWith(suspendedJob, jobCondition(batchv1.JobSuspended, corev1.ConditionFalse, oneDay, "", ""), writtenAt(40*oneDay, "")),
			40*oneDay + time.Second, "Healthy",
		},
		"the start time is ignored": {jobWith(suspendedJob, suspended, startedJob, podCounts(1, 0)), 7 * oneDay, "Healthy"},
		"finished":                  {jobWith(suspendedJob, suspended, completedJob), 6 * oneDay, "Healthy"},
		"suspend is false":          {jobWith(func(job *batchv1.Job) { job.Spec.Suspend = new(false) }, startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
	})
}

func TestNeverStarted(t *testing.T) {
	checkClassification(t, map[string]classification{
		"suspended": {jobWith(suspendedJob), oneDay, "Healthy"},
		"the age counts from the resumption": {
			jobWith(jobCondition(batchv1.JobSuspended, corev1.ConditionFalse, 2*oneDay, "", "")), 2*oneDay + time.Minute, "Healthy",
		},
		"just resumed, not yet observed by the Job controller": {
			jobWith(trueConditionSince(batchv1.JobSuspended, time.Minute, "", ""), writtenAt(2*oneDay, "")), 2*oneDay + time.Minute, "Healthy",
		},
		"a later change does not reset the age": {jobWith(writtenAt(2*oneDay, "")), 2*oneDay + time.Minute, "Zombie NeverStarted"},
	})
}

func TestPausedByParallelism(t *testing.T) {
	checkClassification(t, map[string]classification{
		"the age counts from the last change":    {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "")), 8 * oneDay, "Healthy"},
		"a status update does not reset the age": {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "status")), 8 * oneDay, "Suspicious PausedByParallelism"},
		"having no Pods is intended":             {jobWith(startedJob, parallelism(0), podCounts(0, 0)), 2 * oneDay, "Healthy"},
	})
}

func TestOrphaned(t *testing.T) {
	checkClassification(t, map[string]classification{
		"the CronJob exists":       {jobWith(createdByCronJob, controlledBy("CronJob")), 0, "Healthy"},
		"never a zombie":           {jobWith(createdByCronJob, completedJob, ttlAfterFinished(thirtyDaysInSeconds)), 29 * oneDay, "Suspicious Orphaned"},
		"deleted with its CronJob": {jobWith(createdByCronJob, deletedAt(0)), time.Minute, "Healthy"},
	})
}

func TestTheSeverityOfAnOrphanDoesNotDependOnItsAge(t *testing.T) {
	for name, job := range map[string]*batchv1.Job{
		"complete": jobWith(createdByCronJob, completedJob),
		"failed":   jobWith(createdByCronJob, failedFor("X")),
	} {
		for _, age := range []time.Duration{0, oneDay, 6 * oneDay, 8 * oneDay, 1000 * oneDay} {
			finding := Classify(job, testTimePlus(age), DefaultThresholds())
			if finding.Severity != SeverityMedium && finding.Severity != SeverityHigh {
				t.Errorf("%s, after %s: %s has severity %s", name, age, finding.Reason, finding.Severity)
			}
		}
	}
}

func TestAJobOfKueueNamesItsQueue(t *testing.T) {
	job := jobWith(suspendedJob, labeled("kueue.x-k8s.io/queue-name", "team-a"))
	finding := Classify(job, testTimePlus(8*oneDay), DefaultThresholds())
	if want := "queued by Kueue in team-a since 2026-03-01T12:00:00Z"; finding.Message != want || finding.Cause != "Kueue" {
		t.Errorf("cause %q, message %q, want %q", finding.Cause, finding.Message, want)
	}
}

const thirtyDaysInSeconds int32 = 30 * 24 * 3600

func TestDeadlineNotEnforced(t *testing.T) {
	checkClassification(t, map[string]classification{
		"the deadline counts from the start": {jobWith(startedAt(2*time.Hour), podCounts(1, 1), activeDeadline(3600)), 3 * time.Hour, "Healthy"},
		"not started":                        {jobWith(activeDeadline(1)), 9 * time.Minute, "Healthy"},
		"suspended":                          {jobWith(suspendedJob, startedJob, activeDeadline(1)), time.Hour, "Healthy"},
		"failed at the deadline":             {jobWith(startedJob, activeDeadline(1), failedFor("DeadlineExceeded")), time.Hour, "Suspicious DeadlineExceeded"},
		"the maximum deadline":               {jobWith(startedJob, podCounts(1, 1), activeDeadline(math.MaxInt64)), 1000 * oneDay, "Healthy"},
		"overdue with parallelism 0":         {jobWith(startedJob, parallelism(0), activeDeadline(1)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
	})
}

func TestNoActivePods(t *testing.T) {
	checkClassification(t, map[string]classification{
		"some Pods are terminating":                                {jobWith(startedJob, terminatingPods(1)), time.Hour, "Healthy"},
		"no Pod is terminating":                                    {jobWith(startedJob, terminatingPods(0)), time.Hour, "Suspicious NoActivePods"},
		"a recent status update between two Pods":                  {jobWith(startedJob, activeDeadline(1e9), writtenAt(2*oneDay, "status")), 2*oneDay + time.Minute, "Healthy"},
		"no recent status update":                                  {jobWith(startedJob, writtenAt(2*oneDay, "status")), 3 * oneDay, "Zombie NoActivePods"},
		"the age counts from the resumption":                       {jobWith(startedAt(2*oneDay), writtenAt(oneDay, "status")), 2*oneDay + time.Minute, "Healthy"},
		"a change of the labels does not count as a status update": {jobWith(startedJob, writtenAt(oneDay, "")), oneDay, "Zombie NoActivePods"},
		"the time of the last change is unknown":                   {jobWith(startedAt(0), activeDeadline(1e9)), 30 * oneDay, "Healthy"},
	})
}

func TestNoReadyPods(t *testing.T) {
	checkClassification(t, map[string]classification{
		"one of two Pods is ready":             {jobWith(startedJob, podCounts(2, 1)), time.Hour, "Healthy"},
		"the number of ready Pods is unknown":  {jobWith(startedJob, func(job *batchv1.Job) { job.Status.Active = 1 }), time.Hour, "Healthy"},
		"a Pod failed and its successor waits": {jobWith(startedJob, podCounts(1, 0), finishedPods(0, 1), writtenAt(time.Hour, "status")), 90 * time.Minute, "Suspicious NoReadyPods"},
		"some Pods succeeded, the rest waits":  {jobWith(startedJob, podCounts(1, 0), finishedPods(3, 0), writtenAt(time.Hour, "status")), 25 * time.Hour, "Zombie NoReadyPods"},
		"a Pod was evicted just now":           {jobWith(startedJob, podCounts(1, 0), finishedPods(0, 1), writtenAt(oneDay, "status")), oneDay + time.Minute, "Suspicious RunningTooLong"},
		"a container restarts just now": {
			jobWith(startedJob, activeDeadline(1e9), podCounts(1, 0), writtenAt(30*oneDay, "status")), 30*oneDay + time.Minute, "Healthy",
		},
		"an init container may work":             {jobWith(startedJob, podCounts(1, 0), initContainer(nil)), 30 * oneDay, "Suspicious NoReadyPods"},
		"a native sidecar does not work":         {jobWith(startedJob, podCounts(1, 0), initContainer(new(corev1.ContainerRestartPolicyAlways))), oneDay, "Zombie NoReadyPods"},
		"one of two containers may have ended":   {jobWith(startedJob, podCounts(1, 0), containers(2)), 30 * oneDay, "Suspicious NoReadyPods"},
		"the time of the last change is unknown": {jobWith(startedAt(0), activeDeadline(1e9), podCounts(1, 0)), 30 * oneDay, "Healthy"},
	})
}

func initContainer(restart *corev1.ContainerRestartPolicy) jobTrait {
	return func(job *batchv1.Job) {
		job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", RestartPolicy: restart}}
	}
}

func containers(count int) jobTrait {
	return func(job *batchv1.Job) { job.Spec.Template.Spec.Containers = make([]corev1.Container, count) }
}

// finishedPods sets the numbers of succeeded and failed Pods.
func finishedPods(succeeded, failed int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Succeeded, job.Status.Failed = succeeded, failed }
}

func TestRunningTooLong(t *testing.T) {
	checkClassification(t, map[string]classification{
		"it has a deadline":                  {jobWith(startedJob, podCounts(1, 1), activeDeadline(365*24*3600)), 30 * oneDay, "Healthy"},
		"the age counts from the resumption": {jobWith(startedAt(7*oneDay), podCounts(1, 1)), 7*oneDay + time.Hour, "Healthy"},
	})
}
