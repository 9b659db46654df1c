package zombie

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

// Rule is one way in which a Job can be stale.
type Rule struct {
	// Reasons of the rule's findings. The first one is the rule's key in Thresholds.
	Reasons []Reason
	// Job completes the sentence "A Job that …".
	Job string
	// AgeFrom is the time from which the Job's age counts; empty if the rule matches
	// regardless of age.
	AgeFrom string
	// Flag is the prefix of the rule's threshold flags; empty if the rule has no thresholds.
	Flag string
	// Default thresholds. A threshold that is 0 here cannot be set.
	Default Threshold

	check ruleCheck
}

// ruleCheck returns the finding of a rule, if the Job matches.
type ruleCheck func(*jobFacts) (Finding, bool)

const oneDay = 24 * time.Hour

// Rules returns all rules in order of precedence: the first rule that matches a Job wins.
func Rules() []Rule { return slices.Clone(rules) }

var rules = []Rule{{
	Reasons: []Reason{ReasonUnknown},
	Job:     "has contradictory conditions or an unknown completion mode",
	check:   checkContradictions,
}, {
	Reasons: []Reason{ReasonStuckTerminating},
	Job:     "was deleted but still exists", AgeFrom: "its deletion",
	Flag: "stuck-terminating", Default: Threshold{Suspicious: 15 * time.Minute, Zombie: time.Hour},
	check: checkStuckTerminating,
}, {
	Reasons: []Reason{ReasonTTLNotEnforced},
	Job:     "finished and was not deleted after `ttlSecondsAfterFinished`", AgeFrom: "the end of that time",
	Flag: "ttl-not-enforced", Default: Threshold{Suspicious: time.Hour, Zombie: oneDay},
	check: checkTTLNotEnforced,
}, {
	// Without a Suspicious threshold: the next rule reports a recent failure.
	Reasons: []Reason{ReasonFailedLongAgo},
	Job:     "failed and has no controller, such as a CronJob, that deletes it", AgeFrom: "its failure",
	Flag: "failed-long-ago", Default: Threshold{Zombie: 7 * oneDay},
	check: checkFailedLongAgo,
}, {
	Reasons: append(slices.Clone(jobControllerFailures), ReasonFailedOther),
	Job:     "failed for that reason",
	check:   checkFailed,
}, {
	// Without a Zombie threshold: the Job takes up space and does no harm.
	Reasons: []Reason{ReasonFinishedNotCleaned},
	Job:     "succeeded and has neither `ttlSecondsAfterFinished` nor a controller that deletes it", AgeFrom: "its completion",
	Flag: "finished-not-cleaned", Default: Threshold{Suspicious: 7 * oneDay},
	check: checkFinishedNotCleaned,
}, {
	Reasons: []Reason{ReasonFailureTargetStuck, ReasonSuccessCriteriaStuck},
	Job:     "is about to fail or to complete, but does not finish", AgeFrom: "its condition `FailureTarget` or `SuccessCriteriaMet`",
	Flag: "interim-stuck", Default: Threshold{Suspicious: 30 * time.Minute, Zombie: 6 * time.Hour},
	check: checkInterimConditions,
}, {
	// Without a Zombie threshold: another controller's use of the Job is unknown here.
	Reasons: []Reason{ReasonExternallyManaged},
	Job:     "is unfinished and has another controller in `managedBy`, so that no rule about its progress applies", AgeFrom: "its creation",
	Flag: "externally-managed", Default: Threshold{Suspicious: oneDay},
	check: checkExternallyManaged,
}, {
	Reasons: []Reason{ReasonSuspendedTooLong},
	Job:     "is suspended", AgeFrom: "its suspension",
	Flag: "suspended-too-long", Default: Threshold{Suspicious: 7 * oneDay, Zombie: 30 * oneDay},
	check: checkSuspendedTooLong,
}, {
	Reasons: []Reason{ReasonNeverStarted},
	Job:     "has no `startTime`", AgeFrom: "its creation or resumption",
	Flag: "never-started", Default: Threshold{Suspicious: 10 * time.Minute, Zombie: oneDay},
	check: checkNeverStarted,
}, {
	Reasons: []Reason{ReasonPausedByParallelism},
	Job:     "has `parallelism: 0`", AgeFrom: "its last edit",
	Flag: "paused-by-parallelism", Default: Threshold{Suspicious: 7 * oneDay},
	check: checkPausedByParallelism,
}, {
	Reasons: []Reason{ReasonDeadlineNotEnforced},
	Job:     "exceeded `activeDeadlineSeconds` and did not fail", AgeFrom: "its deadline",
	Flag: "deadline-not-enforced", Default: Threshold{Suspicious: 10 * time.Minute, Zombie: time.Hour},
	check: checkDeadlineNotEnforced,
}, {
	Reasons: []Reason{ReasonNoActivePods},
	Job:     "started and has no Pods", AgeFrom: "the last change of its status",
	Flag: "no-active-pods", Default: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
	check: checkNoActivePods,
}, {
	Reasons: []Reason{ReasonNoReadyPods},
	Job:     "has active Pods, of which none is ready and none has ever finished", AgeFrom: "its start",
	Flag: "no-ready-pods", Default: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
	check: checkNoReadyPods,
}, {
	Reasons: []Reason{ReasonRunningTooLong},
	Job:     "runs without a deadline", AgeFrom: "its start",
	Flag: "running-too-long", Default: Threshold{Suspicious: oneDay, Zombie: 7 * oneDay},
	check: checkRunningTooLong,
}, {
	Reasons: []Reason{ReasonOrphaned},
	Job:     "was created by a CronJob and has no controller",
	check:   checkOrphaned,
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

func (r *Rule) evaluate(job *batchv1.Job, now time.Time, thresholds Thresholds) (Finding, bool) {
	return r.check(&jobFacts{Job: job, now: now, threshold: thresholds.ofRule(r)})
}

// AllReasons returns the reasons of all rules in order of precedence.
func AllReasons() []Reason {
	var reasons []Reason
	for i := range rules {
		reasons = append(reasons, rules[i].Reasons...)
	}
	return reasons
}
