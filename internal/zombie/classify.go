package zombie

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// ruleCheck tells what it has found of a Job, if anything.
type ruleCheck func(*jobFacts) (Finding, bool)

// rules in the order in which they win.
var rules = []ruleCheck{
	checkContradictions,
	checkStuckTerminating,
	checkTTLNotEnforced,
	checkFailedLongAgo,
	checkFailed,
	checkFinishedNotCleaned,
	checkFailureTargetStuck,
	checkSuccessCriteriaStuck,
	checkExternallyManaged,
	checkSuspendedTooLong,
	checkNeverStarted,
	checkPausedByParallelism,
	checkDeadlineNotEnforced,
	checkNoActivePods,
	checkNoReadyPods,
	checkRunningTooLong,
	checkOrphaned,
}

// Classify tells what the Job is at that time. It does not change the Job.
func Classify(job *batchv1.Job, now time.Time, thresholds Thresholds) Finding {
	f := &jobFacts{Job: job, now: now, thresholds: thresholds}
	for _, rule := range rules {
		if finding, found := rule(f); found {
			return finding
		}
	}
	return Finding{Category: CategoryHealthy}
}
