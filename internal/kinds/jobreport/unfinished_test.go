package jobreport

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestExternallyManaged(t *testing.T) {
	checkClassification(t, map[string]classification{
		"less than a day":                    {jobWith(managedByTrait("a.example/b")), oneDay - 1, "Healthy"},
		"a day":                              {jobWith(managedByTrait("a.example/b")), oneDay, "Suspicious ExternallyManaged"},
		"never a zombie":                     {jobWith(managedByTrait("a.example/b")), 1000 * oneDay, "Suspicious ExternallyManaged"},
		"finished":                           {jobWith(managedByTrait("a.example/b"), completedJob), 2 * oneDay, "Healthy"},
		"managedBy names the Job controller": {jobWith(managedByTrait(batchv1.JobControllerName)), oneDay, "Zombie NeverStarted"},
		"other rules do not apply":           {jobWith(managedByTrait("a.example/b"), suspendedJob, startedJob, parallelism(0), activeDeadline(1)), oneDay - 1, "Healthy"},
	})
}

func TestSuspendedTooLong(t *testing.T) {
	suspended := trueConditionSince(batchv1.JobSuspended, oneDay, "JobSuspended", "")
	checkClassification(t, map[string]classification{
		"less than a week": {jobWith(suspendedJob, suspended), 8*oneDay - 1, "Healthy"},
		"a week":           {jobWith(suspendedJob, suspended), 8 * oneDay, "Suspicious SuspendedTooLong"},
		"a month":          {jobWith(suspendedJob, suspended), 31 * oneDay, "Zombie SuspendedTooLong"},
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
		"less than ten minutes": {jobWith(), 10*time.Minute - 1, "Healthy"},
		"ten minutes":           {jobWith(), 10 * time.Minute, "Suspicious NeverStarted"},
		"a day":                 {jobWith(), oneDay, "Zombie NeverStarted"},
		"started":               {jobWith(startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
		"suspended":             {jobWith(suspendedJob), oneDay, "Healthy"},
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
		"less than a week":                       {jobWith(startedJob, parallelism(0)), 7*oneDay - 1, "Healthy"},
		"a week":                                 {jobWith(startedJob, parallelism(0)), 7 * oneDay, "Suspicious PausedByParallelism"},
		"never a zombie":                         {jobWith(startedJob, parallelism(0)), 1000 * oneDay, "Suspicious PausedByParallelism"},
		"the age counts from the last change":    {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "")), 8 * oneDay, "Healthy"},
		"a status update does not reset the age": {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "status")), 8 * oneDay, "Suspicious PausedByParallelism"},
		"having no Pods is intended":             {jobWith(startedJob, parallelism(0), podCounts(0, 0)), 2 * oneDay, "Healthy"},
	})
}

func TestOrphaned(t *testing.T) {
	checkClassification(t, map[string]classification{
		"the CronJob was deleted":  {jobWith(createdByCronJob), 0, "Suspicious Orphaned"},
		"the CronJob exists":       {jobWith(createdByCronJob, controlledBy("CronJob")), 0, "Healthy"},
		"complete":                 {jobWith(createdByCronJob, completedJob), oneDay, "Suspicious Orphaned"},
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
		"the deadline is later":              {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), time.Hour, "Healthy"},
		"less than ten minutes late":         {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), 70*time.Minute - 1, "Healthy"},
		"ten minutes late":                   {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), 70 * time.Minute, "Suspicious DeadlineNotEnforced"},
		"an hour late":                       {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
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
		"less than half an hour":                  {jobWith(startedJob), 30*time.Minute - 1, "Healthy"},
		"half an hour":                            {jobWith(startedJob), 30 * time.Minute, "Suspicious NoActivePods"},
		"a day":                                   {jobWith(startedJob), oneDay, "Zombie NoActivePods"},
		"some Pods are terminating":               {jobWith(startedJob, terminatingPods(1)), time.Hour, "Healthy"},
		"no Pod is terminating":                   {jobWith(startedJob, terminatingPods(0)), time.Hour, "Suspicious NoActivePods"},
		"one Pod is active":                       {jobWith(startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
		"a recent status update between two Pods": {jobWith(startedJob, activeDeadline(1e9), writtenAt(2*oneDay, "status")), 2*oneDay + time.Minute, "Healthy"},
		"no recent status update":                 {jobWith(startedJob, writtenAt(2*oneDay, "status")), 3 * oneDay, "Zombie NoActivePods"},
		"the age counts from the resumption":      {jobWith(startedAt(2*oneDay), writtenAt(oneDay, "status")), 2*oneDay + time.Minute, "Healthy"},
		"a change of the labels does not count as a status update": {jobWith(startedJob, writtenAt(oneDay, "")), oneDay, "Zombie NoActivePods"},
		"the time of the last change is unknown":                   {jobWith(startedAt(0), activeDeadline(1e9)), 30 * oneDay, "Healthy"},
	})
}

func TestNoReadyPods(t *testing.T) {
	checkClassification(t, map[string]classification{
		"less than half an hour":               {jobWith(startedJob, podCounts(2, 0)), 30*time.Minute - 1, "Healthy"},
		"half an hour":                         {jobWith(startedJob, podCounts(2, 0)), 30 * time.Minute, "Suspicious NoReadyPods"},
		"a day":                                {jobWith(startedJob, podCounts(2, 0)), oneDay, "Zombie NoReadyPods"},
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
		"less than a day":                    {jobWith(startedJob, podCounts(1, 1)), oneDay - 1, "Healthy"},
		"a day":                              {jobWith(startedJob, podCounts(1, 1)), oneDay, "Suspicious RunningTooLong"},
		"a week":                             {jobWith(startedJob, podCounts(1, 1)), 7 * oneDay, "Zombie RunningTooLong"},
		"it has a deadline":                  {jobWith(startedJob, podCounts(1, 1), activeDeadline(365*24*3600)), 30 * oneDay, "Healthy"},
		"the age counts from the resumption": {jobWith(startedAt(7*oneDay), podCounts(1, 1)), 7*oneDay + time.Hour, "Healthy"},
	})
}
