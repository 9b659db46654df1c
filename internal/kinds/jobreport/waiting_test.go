package jobreport

import (
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
