package zombie

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestExternallyManaged(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost a day":                   {jobWith(managedByTrait("a.example/b")), oneDay - 1, "Healthy"},
		"for a day":                          {jobWith(managedByTrait("a.example/b")), oneDay, "Suspicious ExternallyManaged"},
		"never a zombie":                     {jobWith(managedByTrait("a.example/b")), 1000 * oneDay, "Suspicious ExternallyManaged"},
		"finished":                           {jobWith(managedByTrait("a.example/b"), completedJob), 2 * oneDay, "Healthy"},
		"by the Job controller, and said so": {jobWith(managedByTrait(batchv1.JobControllerName)), oneDay, "Zombie NeverStarted"},
		"what it does is not judged":         {jobWith(managedByTrait("a.example/b"), suspendedJob, startedJob, parallelism(0), activeDeadline(1)), oneDay - 1, "Healthy"},
	})
}

func TestSuspendedTooLong(t *testing.T) {
	suspended := trueConditionSince(batchv1.JobSuspended, oneDay, "JobSuspended", "")
	checkClassification(t, map[string]classification{
		"for almost a week": {jobWith(suspendedJob, suspended), 8*oneDay - 1, "Healthy"},
		"for a week":        {jobWith(suspendedJob, suspended), 8 * oneDay, "Suspicious SuspendedTooLong"},
		"for a month":       {jobWith(suspendedJob, suspended), 31 * oneDay, "Zombie SuspendedTooLong"},
		"from the creation, when nothing is said": {jobWith(suspendedJob), 7 * oneDay, "Suspicious SuspendedTooLong"},
		"just now, and not yet taken note of":     {jobWith(suspendedJob, startedJob, writtenAt(40*oneDay, "")), 40*oneDay + time.Second, "Healthy"},
		"again just now, after it was resumed": {
			jobWith(suspendedJob, jobCondition(batchv1.JobSuspended, corev1.ConditionFalse, oneDay, "", ""), writtenAt(40*oneDay, "")),
			40*oneDay + time.Second, "Healthy",
		},
		"its start does not count": {jobWith(suspendedJob, suspended, startedJob, podCounts(1, 0)), 7 * oneDay, "Healthy"},
		"finished":                 {jobWith(suspendedJob, suspended, completedJob), 6 * oneDay, "Healthy"},
		"suspend is false":         {jobWith(func(job *batchv1.Job) { job.Spec.Suspend = new(false) }, startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
	})
}

func TestNeverStarted(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost ten minutes": {jobWith(), 10*time.Minute - 1, "Healthy"},
		"for ten minutes":        {jobWith(), 10 * time.Minute, "Suspicious NeverStarted"},
		"for a day":              {jobWith(), oneDay, "Zombie NeverStarted"},
		"started":                {jobWith(startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
		"suspended":              {jobWith(suspendedJob), oneDay, "Healthy"},
		"counted from when it was resumed": {
			jobWith(jobCondition(batchv1.JobSuspended, corev1.ConditionFalse, 2*oneDay, "", "")), 2*oneDay + time.Minute, "Healthy",
		},
		"resumed just now, and not yet taken note of": {
			jobWith(trueConditionSince(batchv1.JobSuspended, time.Minute, "", ""), writtenAt(2*oneDay, "")), 2*oneDay + time.Minute, "Healthy",
		},
		"a later edit does not make it young": {jobWith(writtenAt(2*oneDay, "")), 2*oneDay + time.Minute, "Zombie NeverStarted"},
	})
}

func TestPausedByParallelism(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost a week":               {jobWith(startedJob, parallelism(0)), 7*oneDay - 1, "Healthy"},
		"for a week":                      {jobWith(startedJob, parallelism(0)), 7 * oneDay, "Suspicious PausedByParallelism"},
		"never a zombie":                  {jobWith(startedJob, parallelism(0)), 1000 * oneDay, "Suspicious PausedByParallelism"},
		"counted from the last edit":      {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "")), 8 * oneDay, "Healthy"},
		"a status write is no edit":       {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "status")), 8 * oneDay, "Suspicious PausedByParallelism"},
		"that it has no Pods is meant so": {jobWith(startedJob, parallelism(0), podCounts(0, 0)), 2 * oneDay, "Healthy"},
	})
}

func TestOrphaned(t *testing.T) {
	checkClassification(t, map[string]classification{
		"of a CronJob that is gone":       {jobWith(createdByCronJob), 0, "Suspicious Orphaned"},
		"of a CronJob that is there":      {jobWith(createdByCronJob, controlledBy("CronJob")), 0, "Healthy"},
		"complete":                        {jobWith(createdByCronJob, completedJob), oneDay, "Suspicious Orphaned"},
		"never a zombie for that":         {jobWith(createdByCronJob, completedJob, ttlAfterFinished(thirtyDaysInSeconds)), 29 * oneDay, "Suspicious Orphaned"},
		"on its way out with its CronJob": {jobWith(createdByCronJob, deletedAt(0)), time.Minute, "Healthy"},
	})
}

const thirtyDaysInSeconds int32 = 30 * 24 * 3600
