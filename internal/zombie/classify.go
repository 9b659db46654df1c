package zombie

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// rule tells what it has found of a Job, if anything.
type rule func(*facts) (Finding, bool)

// rules in the order in which they win.
var rules = []rule{
	unknown,
	stuckTerminating,
	ttlNotEnforced,
	failedLongAgo,
	failed,
	finishedNotCleaned,
	failureTargetStuck,
	successCriteriaStuck,
	externallyManaged,
	suspendedTooLong,
	neverStarted,
	pausedByParallelism,
	deadlineNotEnforced,
	noActivePods,
	noReadyPods,
	runningTooLong,
	orphaned,
}

// Classify tells what the Job is at that time. It does not change the Job.
func Classify(job *batchv1.Job, now time.Time, thresholds Thresholds) Finding {
	f := &facts{Job: job, now: now, thresholds: thresholds}
	for _, rule := range rules {
		if finding, found := rule(f); found {
			return finding
		}
	}
	return Finding{Category: Healthy}
}
