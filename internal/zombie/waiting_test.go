package zombie

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestExternallyManaged(t *testing.T) {
	check(t, map[string]row{
		"for almost a day":                   {jobWith(managedBy("a.example/b")), day - 1, "Healthy"},
		"for a day":                          {jobWith(managedBy("a.example/b")), day, "Suspicious ExternallyManaged"},
		"never a zombie":                     {jobWith(managedBy("a.example/b")), 1000 * day, "Suspicious ExternallyManaged"},
		"finished":                           {jobWith(managedBy("a.example/b"), complete), 2 * day, "Healthy"},
		"by the Job controller, and said so": {jobWith(managedBy(batchv1.JobControllerName)), day, "Zombie NeverStarted"},
		"what it does is not judged":         {jobWith(managedBy("a.example/b"), suspend, started, parallelism(0), deadline(1)), day - 1, "Healthy"},
	})
}

func TestSuspendedTooLong(t *testing.T) {
	suspended := is(batchv1.JobSuspended, day, "JobSuspended", "")
	check(t, map[string]row{
		"for almost a week": {jobWith(suspend, suspended), 8*day - 1, "Healthy"},
		"for a week":        {jobWith(suspend, suspended), 8 * day, "Suspicious SuspendedTooLong"},
		"for a month":       {jobWith(suspend, suspended), 31 * day, "Zombie SuspendedTooLong"},
		"from the creation, when nothing is said": {jobWith(suspend), 7 * day, "Suspicious SuspendedTooLong"},
		"just now, and not yet taken note of":     {jobWith(suspend, started, writtenAt(40*day, "")), 40*day + time.Second, "Healthy"},
		"again just now, after it was resumed": {
			jobWith(suspend, condition(batchv1.JobSuspended, corev1.ConditionFalse, day, "", ""), writtenAt(40*day, "")),
			40*day + time.Second, "Healthy",
		},
		"its start does not count": {jobWith(suspend, suspended, started, pods(1, 0)), 7 * day, "Healthy"},
		"finished":                 {jobWith(suspend, suspended, complete), 6 * day, "Healthy"},
		"suspend is false":         {jobWith(func(job *batchv1.Job) { job.Spec.Suspend = new(false) }, started, pods(1, 1)), time.Hour, "Healthy"},
	})
}

func TestNeverStarted(t *testing.T) {
	check(t, map[string]row{
		"for almost ten minutes": {jobWith(), 10*time.Minute - 1, "Healthy"},
		"for ten minutes":        {jobWith(), 10 * time.Minute, "Suspicious NeverStarted"},
		"for a day":              {jobWith(), day, "Zombie NeverStarted"},
		"started":                {jobWith(started, pods(1, 1)), time.Hour, "Healthy"},
		"suspended":              {jobWith(suspend), day, "Healthy"},
		"counted from when it was resumed": {
			jobWith(condition(batchv1.JobSuspended, corev1.ConditionFalse, 2*day, "", "")), 2*day + time.Minute, "Healthy",
		},
		"resumed just now, and not yet taken note of": {
			jobWith(is(batchv1.JobSuspended, time.Minute, "", ""), writtenAt(2*day, "")), 2*day + time.Minute, "Healthy",
		},
		"a later edit does not make it young": {jobWith(writtenAt(2*day, "")), 2*day + time.Minute, "Zombie NeverStarted"},
	})
}

func TestPausedByParallelism(t *testing.T) {
	check(t, map[string]row{
		"for almost a week":               {jobWith(started, parallelism(0)), 7*day - 1, "Healthy"},
		"for a week":                      {jobWith(started, parallelism(0)), 7 * day, "Suspicious PausedByParallelism"},
		"never a zombie":                  {jobWith(started, parallelism(0)), 1000 * day, "Suspicious PausedByParallelism"},
		"counted from the last edit":      {jobWith(started, parallelism(0), writtenAt(6*day, "")), 8 * day, "Healthy"},
		"a status write is no edit":       {jobWith(started, parallelism(0), writtenAt(6*day, "status")), 8 * day, "Suspicious PausedByParallelism"},
		"that it has no Pods is meant so": {jobWith(started, parallelism(0), pods(0, 0)), 2 * day, "Healthy"},
	})
}

func TestOrphaned(t *testing.T) {
	check(t, map[string]row{
		"of a CronJob that is gone":       {jobWith(scheduled), 0, "Suspicious Orphaned"},
		"of a CronJob that is there":      {jobWith(scheduled, controlledBy("CronJob")), 0, "Healthy"},
		"complete":                        {jobWith(scheduled, complete), day, "Suspicious Orphaned"},
		"never a zombie for that":         {jobWith(scheduled, complete, ttl(thirtyDays)), 29 * day, "Suspicious Orphaned"},
		"on its way out with its CronJob": {jobWith(scheduled, deletedAt(0)), time.Minute, "Healthy"},
	})
}

const thirtyDays int32 = 30 * 24 * 3600
