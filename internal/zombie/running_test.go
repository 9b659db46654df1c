package zombie

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

func TestDeadlineNotEnforced(t *testing.T) {
	checkClassification(t, map[string]classification{
		"the deadline is to come":           {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), time.Hour, "Healthy"},
		"the controller may be late":        {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), 70*time.Minute - 1, "Healthy"},
		"ten minutes late":                  {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), 70 * time.Minute, "Suspicious DeadlineNotEnforced"},
		"an hour late":                      {jobWith(startedJob, podCounts(1, 1), activeDeadline(3600)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
		"counted from the start":            {jobWith(startedAt(2*time.Hour), podCounts(1, 1), activeDeadline(3600)), 3 * time.Hour, "Healthy"},
		"not started, so not under way":     {jobWith(activeDeadline(1)), 9 * time.Minute, "Healthy"},
		"suspended, so the clock stands":    {jobWith(suspendedJob, startedJob, activeDeadline(1)), time.Hour, "Healthy"},
		"failed by it, as it should":        {jobWith(startedJob, activeDeadline(1), failedFor("DeadlineExceeded")), time.Hour, "Suspicious DeadlineExceeded"},
		"a deadline longer than time lasts": {jobWith(startedJob, podCounts(1, 1), activeDeadline(math.MaxInt64)), 1000 * oneDay, "Healthy"},
		"paused, yet overdue":               {jobWith(startedJob, parallelism(0), activeDeadline(1)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
	})
}

func TestNoActivePods(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost half an hour":                  {jobWith(startedJob), 30*time.Minute - 1, "Healthy"},
		"for half an hour":                         {jobWith(startedJob), 30 * time.Minute, "Suspicious NoActivePods"},
		"for a day":                                {jobWith(startedJob), oneDay, "Zombie NoActivePods"},
		"some are still on their way out":          {jobWith(startedJob, terminatingPods(1)), time.Hour, "Healthy"},
		"none is on its way out":                   {jobWith(startedJob, terminatingPods(0)), time.Hour, "Suspicious NoActivePods"},
		"one is active":                            {jobWith(startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
		"between two tries":                        {jobWith(startedJob, activeDeadline(1e9), writtenAt(2*oneDay, "status")), 2*oneDay + time.Minute, "Healthy"},
		"no status was written since":              {jobWith(startedJob, writtenAt(2*oneDay, "status")), 3 * oneDay, "Zombie NoActivePods"},
		"counted from when it was resumed":         {jobWith(startedAt(2*oneDay), writtenAt(oneDay, "status")), 2*oneDay + time.Minute, "Healthy"},
		"an edit of its labels is no sign of life": {jobWith(startedJob, writtenAt(oneDay, "")), oneDay, "Zombie NoActivePods"},
	})
}

func TestNoReadyPods(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost half an hour":               {jobWith(startedJob, podCounts(2, 0)), 30*time.Minute - 1, "Healthy"},
		"for half an hour":                      {jobWith(startedJob, podCounts(2, 0)), 30 * time.Minute, "Suspicious NoReadyPods"},
		"for a day":                             {jobWith(startedJob, podCounts(2, 0)), oneDay, "Zombie NoReadyPods"},
		"one of two is ready":                   {jobWith(startedJob, podCounts(2, 1)), time.Hour, "Healthy"},
		"whether they are ready is not known":   {jobWith(startedJob, func(job *batchv1.Job) { job.Status.Active = 1 }), time.Hour, "Healthy"},
		"some have succeeded":                   {jobWith(startedJob, podCounts(1, 0), func(job *batchv1.Job) { job.Status.Succeeded = 1 }), time.Hour, "Healthy"},
		"some have failed, and are tried again": {jobWith(startedJob, podCounts(1, 0), func(job *batchv1.Job) { job.Status.Failed = 1 }), time.Hour, "Healthy"},
	})
}

func TestRunningTooLong(t *testing.T) {
	checkClassification(t, map[string]classification{
		"for almost a day":                 {jobWith(startedJob, podCounts(1, 1)), oneDay - 1, "Healthy"},
		"for a day":                        {jobWith(startedJob, podCounts(1, 1)), oneDay, "Suspicious RunningTooLong"},
		"for a week":                       {jobWith(startedJob, podCounts(1, 1)), 7 * oneDay, "Zombie RunningTooLong"},
		"a deadline will end it":           {jobWith(startedJob, podCounts(1, 1), activeDeadline(365*24*3600)), 30 * oneDay, "Healthy"},
		"counted from when it was resumed": {jobWith(startedAt(7*oneDay), podCounts(1, 1)), 7*oneDay + time.Hour, "Healthy"},
	})
}
