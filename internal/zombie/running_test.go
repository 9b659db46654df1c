package zombie

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

func TestDeadlineNotEnforced(t *testing.T) {
	check(t, map[string]row{
		"the deadline is to come":           {jobWith(started, pods(1, 1), deadline(3600)), time.Hour, "Healthy"},
		"the controller may be late":        {jobWith(started, pods(1, 1), deadline(3600)), 70*time.Minute - 1, "Healthy"},
		"ten minutes late":                  {jobWith(started, pods(1, 1), deadline(3600)), 70 * time.Minute, "Suspicious DeadlineNotEnforced"},
		"an hour late":                      {jobWith(started, pods(1, 1), deadline(3600)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
		"counted from the start":            {jobWith(startedAt(2*time.Hour), pods(1, 1), deadline(3600)), 3 * time.Hour, "Healthy"},
		"not started, so not under way":     {jobWith(deadline(1)), 9 * time.Minute, "Healthy"},
		"suspended, so the clock stands":    {jobWith(suspend, started, deadline(1)), time.Hour, "Healthy"},
		"failed by it, as it should":        {jobWith(started, deadline(1), failedFor("DeadlineExceeded")), time.Hour, "Suspicious DeadlineExceeded"},
		"a deadline longer than time lasts": {jobWith(started, pods(1, 1), deadline(math.MaxInt64)), 1000 * day, "Healthy"},
		"paused, yet overdue":               {jobWith(started, parallelism(0), deadline(1)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
	})
}

func TestNoActivePods(t *testing.T) {
	check(t, map[string]row{
		"for almost half an hour":                  {jobWith(started), 30*time.Minute - 1, "Healthy"},
		"for half an hour":                         {jobWith(started), 30 * time.Minute, "Suspicious NoActivePods"},
		"for a day":                                {jobWith(started), day, "Zombie NoActivePods"},
		"some are still on their way out":          {jobWith(started, terminating(1)), time.Hour, "Healthy"},
		"none is on its way out":                   {jobWith(started, terminating(0)), time.Hour, "Suspicious NoActivePods"},
		"one is active":                            {jobWith(started, pods(1, 1)), time.Hour, "Healthy"},
		"between two tries":                        {jobWith(started, deadline(1e9), writtenAt(2*day, "status")), 2*day + time.Minute, "Healthy"},
		"no status was written since":              {jobWith(started, writtenAt(2*day, "status")), 3 * day, "Zombie NoActivePods"},
		"counted from when it was resumed":         {jobWith(startedAt(2*day), writtenAt(day, "status")), 2*day + time.Minute, "Healthy"},
		"an edit of its labels is no sign of life": {jobWith(started, writtenAt(day, "")), day, "Zombie NoActivePods"},
	})
}

func TestNoReadyPods(t *testing.T) {
	check(t, map[string]row{
		"for almost half an hour":               {jobWith(started, pods(2, 0)), 30*time.Minute - 1, "Healthy"},
		"for half an hour":                      {jobWith(started, pods(2, 0)), 30 * time.Minute, "Suspicious NoReadyPods"},
		"for a day":                             {jobWith(started, pods(2, 0)), day, "Zombie NoReadyPods"},
		"one of two is ready":                   {jobWith(started, pods(2, 1)), time.Hour, "Healthy"},
		"whether they are ready is not known":   {jobWith(started, func(job *batchv1.Job) { job.Status.Active = 1 }), time.Hour, "Healthy"},
		"some have succeeded":                   {jobWith(started, pods(1, 0), func(job *batchv1.Job) { job.Status.Succeeded = 1 }), time.Hour, "Healthy"},
		"some have failed, and are tried again": {jobWith(started, pods(1, 0), func(job *batchv1.Job) { job.Status.Failed = 1 }), time.Hour, "Healthy"},
	})
}

func TestRunningTooLong(t *testing.T) {
	check(t, map[string]row{
		"for almost a day":                 {jobWith(started, pods(1, 1)), day - 1, "Healthy"},
		"for a day":                        {jobWith(started, pods(1, 1)), day, "Suspicious RunningTooLong"},
		"for a week":                       {jobWith(started, pods(1, 1)), 7 * day, "Zombie RunningTooLong"},
		"a deadline will end it":           {jobWith(started, pods(1, 1), deadline(365*24*3600)), 30 * day, "Healthy"},
		"counted from when it was resumed": {jobWith(startedAt(7*day), pods(1, 1)), 7*day + time.Hour, "Healthy"},
	})
}
