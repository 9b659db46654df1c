package jobreport

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

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
		"the time of the last change is unknown": {jobWith(startedAt(0), activeDeadline(1e9), podCounts(1, 0)), 30 * oneDay, "Healthy"},
	})
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
