package zombie

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// staleRule is one way in which a Job can be stale.
type staleRule struct {
	// reasons of the rule's findings. The first one is the rule's key in Thresholds.
	reasons []Reason
	// check returns the finding if the Job matches.
	check func(*jobFacts) (Finding, bool)
	// description completes the sentence "A Job that …".
	description string
	// ageFrom is the time from which the Job's age counts; empty if the rule matches
	// regardless of age.
	ageFrom string
	// flag is the prefix of the rule's threshold flags; empty if the rule has no thresholds.
	flag string
	// defaults of the thresholds. A threshold that is 0 here cannot be set.
	defaults Threshold
}

const oneDay = 24 * time.Hour

// rules are in order of precedence: the first rule that matches a Job wins.
var rules = []staleRule{{
	reasons: []Reason{ReasonUnknown}, check: checkContradictions,
	description: "has contradictory conditions or an unknown completion mode",
}, {
	reasons: []Reason{ReasonStuckTerminating}, check: checkStuckTerminating,
	description: "was deleted but still exists", ageFrom: "its deletion",
	flag: "stuck-terminating", defaults: Threshold{Suspicious: 15 * time.Minute, Zombie: time.Hour},
}, {
	reasons: []Reason{ReasonTTLNotEnforced}, check: checkTTLNotEnforced,
	description: "finished and was not deleted after `ttlSecondsAfterFinished`", ageFrom: "the end of that time",
	flag: "ttl-not-enforced", defaults: Threshold{Suspicious: time.Hour, Zombie: oneDay},
}, {
	// Without a Suspicious threshold: the next rule reports a recent failure.
	reasons: []Reason{ReasonFailedLongAgo}, check: checkFailedLongAgo,
	description: "failed and has no controller, such as a CronJob, that deletes it", ageFrom: "its failure",
	flag: "failed-long-ago", defaults: Threshold{Zombie: 7 * oneDay},
}, {
	reasons: append(slices.Clone(jobControllerFailures), ReasonFailedOther), check: checkFailed,
	description: "failed for that reason",
}, {
	// Without a Zombie threshold: the Job takes up space and does no harm.
	reasons: []Reason{ReasonFinishedNotCleaned}, check: checkFinishedNotCleaned,
	description: "succeeded and has neither `ttlSecondsAfterFinished` nor a controller that deletes it", ageFrom: "its completion",
	flag: "finished-not-cleaned", defaults: Threshold{Suspicious: 7 * oneDay},
}, {
	reasons: []Reason{ReasonFailureTargetStuck, ReasonSuccessCriteriaStuck}, check: checkInterimConditions,
	description: "is about to fail or to complete, but does not finish", ageFrom: "its condition `FailureTarget` or `SuccessCriteriaMet`",
	flag: "interim-stuck", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: 6 * time.Hour},
}, {
	// Without a Zombie threshold: another controller's use of the Job is unknown here.
	reasons: []Reason{ReasonExternallyManaged}, check: checkExternallyManaged,
	description: "is unfinished and has another controller in `managedBy`, so that no rule about its progress applies", ageFrom: "its creation",
	flag: "externally-managed", defaults: Threshold{Suspicious: oneDay},
}, {
	reasons: []Reason{ReasonSuspendedTooLong}, check: checkSuspendedTooLong,
	description: "is suspended", ageFrom: "its suspension",
	flag: "suspended-too-long", defaults: Threshold{Suspicious: 7 * oneDay, Zombie: 30 * oneDay},
}, {
	reasons: []Reason{ReasonNeverStarted}, check: checkNeverStarted,
	description: "has no `startTime`", ageFrom: "its creation or resumption",
	flag: "never-started", defaults: Threshold{Suspicious: 10 * time.Minute, Zombie: oneDay},
}, {
	reasons: []Reason{ReasonPausedByParallelism}, check: checkPausedByParallelism,
	description: "has `parallelism: 0`", ageFrom: "its last edit",
	flag: "paused-by-parallelism", defaults: Threshold{Suspicious: 7 * oneDay},
}, {
	reasons: []Reason{ReasonDeadlineNotEnforced}, check: checkDeadlineNotEnforced,
	description: "exceeded `activeDeadlineSeconds` and did not fail", ageFrom: "its deadline",
	flag: "deadline-not-enforced", defaults: Threshold{Suspicious: 10 * time.Minute, Zombie: time.Hour},
}, {
	reasons: []Reason{ReasonNoActivePods}, check: checkNoActivePods,
	description: "started and has no Pods", ageFrom: "the last change of its status",
	flag: "no-active-pods", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
}, {
	reasons: []Reason{ReasonNoReadyPods}, check: checkNoReadyPods,
	description: "has active Pods, of which none is ready and none has ever finished", ageFrom: "its start",
	flag: "no-ready-pods", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
}, {
	reasons: []Reason{ReasonRunningTooLong}, check: checkRunningTooLong,
	description: "runs without a deadline", ageFrom: "its start",
	flag: "running-too-long", defaults: Threshold{Suspicious: oneDay, Zombie: 7 * oneDay},
}, {
	reasons: []Reason{ReasonOrphaned}, check: checkOrphaned,
	description: "was created by a CronJob and has no controller",
}}

// Classify returns the finding of the first rule that matches the Job now, or CategoryHealthy. It
// does not change the Job.
func Classify(job *batchv1.Job, now time.Time, thresholds Thresholds) Finding {
	for i := range rules {
		if finding, found := rules[i].evaluate(job, now, thresholds); found {
			return finding
		}
	}
	return Finding{Category: CategoryHealthy}
}

func (r *staleRule) evaluate(job *batchv1.Job, now time.Time, thresholds Thresholds) (Finding, bool) {
	return r.check(&jobFacts{Job: job, now: now, threshold: thresholds.ofRule(r)})
}

// AllReasons returns the reasons of all rules in order of precedence.
func AllReasons() []Reason {
	var reasons []Reason
	for i := range rules {
		reasons = append(reasons, rules[i].reasons...)
	}
	return reasons
}
