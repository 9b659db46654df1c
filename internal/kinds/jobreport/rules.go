package jobreport

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// staleRule is one way in which a Job can be stale.
type staleRule struct {
	// reasons of the rule's findings. The first one is the rule's key in Thresholds.
	reasons []reasonText
	// check returns the finding; nil if the Job does not match.
	check func(*jobFacts) *Finding
	// description completes the sentence "A Job that …".
	description string
	// ageFrom is the time from which the Job's age counts; empty if the rule matches regardless of age.
	ageFrom string
	// flag is the prefix of the rule's threshold flags; empty if the rule has no thresholds.
	flag string
	// defaults of the thresholds. A threshold that is 0 here cannot be set.
	defaults Threshold
}

// reasonText is a reason and the next step for a Job with this reason.
type reasonText struct {
	reason Reason
	// next is a sentence that begins with a verb.
	next string
}

func (r *staleRule) key() Reason { return r.reasons[0].reason }

const oneDay = 24 * time.Hour

const (
	nextFailedIndexes = "Read the logs of the Pods whose indexes are in status.failedIndexes."
	nextCleanup       = "Delete the Job, and set ttlSecondsAfterFinished in the manifest that creates it."
	nextTermination   = "Find the Pods that do not terminate, and check whether their nodes still exist."
)

// rules are in order of precedence: the first rule that matches a Job wins. Flags, documentation, alerts and the texts of
// findings are generated from this table.
var rules = []staleRule{{
	reasons: []reasonText{{
		ReasonUnknown,
		"Find out which controller wrote the Job's conditions. The Job controller makes no progress with it.",
	}},
	check:       checkContradictions,
	description: "has contradictory conditions or an unknown completion mode",
}, {
	reasons: []reasonText{{
		ReasonStuckTerminating,
		"Check the nodes of Pods that do not terminate. If the controller of the finalizer no longer runs, remove the finalizer with kubectl edit.",
	}},
	check:       checkStuckTerminating,
	description: "was deleted but still exists", ageFrom: "its deletion",
	flag: "stuck-terminating", defaults: Threshold{Suspicious: 15 * time.Minute, Zombie: time.Hour},
}, {
	reasons:     []reasonText{{ReasonTTLNotEnforced, "Check that kube-controller-manager runs, then delete the Job."}},
	check:       checkTTLNotEnforced,
	description: "finished and was not deleted after `ttlSecondsAfterFinished`", ageFrom: "the end of that time",
	flag: "ttl-not-enforced", defaults: Threshold{Suspicious: time.Hour, Zombie: oneDay},
}, {
	// Without a Suspicious threshold: the next rule reports a recent failure.
	reasons:     []reasonText{{ReasonFailedLongAgo, nextCleanup}},
	check:       checkFailedLongAgo,
	description: "failed and has neither `ttlSecondsAfterFinished` nor a controller, such as a CronJob, that deletes it", ageFrom: "its failure",
	flag: "failed-long-ago", defaults: Threshold{Zombie: 7 * oneDay},
}, {
	reasons: []reasonText{
		{ReasonBackoffLimitExceeded, "Read the log of its last Pod with kubectl logs job/NAME, fix the cause, and create the Job again."},
		{ReasonDeadlineExceeded, "Find out what the Job waited for. If it only needs more time, raise activeDeadlineSeconds."},
		{ReasonPodFailurePolicy, "Fix the cause of the exit code or Pod condition that the message names; its podFailurePolicy does not retry it."},
		{ReasonMaxFailedIndexesExceeded, nextFailedIndexes},
		{ReasonFailedIndexes, nextFailedIndexes},
		{ReasonFailedOther, "Read the condition Failed: another controller or a user wrote it."},
	},
	check:       checkFailed,
	description: "failed for that reason",
}, {
	// Without a Zombie threshold: the Job takes up space and does no harm.
	reasons:     []reasonText{{ReasonFinishedNotCleaned, nextCleanup}},
	check:       checkFinishedNotCleaned,
	description: "succeeded and has neither `ttlSecondsAfterFinished` nor a controller that deletes it", ageFrom: "its completion",
	flag: "finished-not-cleaned", defaults: Threshold{Suspicious: 7 * oneDay},
}, {
	reasons:     []reasonText{{ReasonFailureTargetStuck, nextTermination}, {ReasonSuccessCriteriaStuck, nextTermination}},
	check:       checkInterimConditions,
	description: "is about to fail or to complete, but does not finish", ageFrom: "its condition `FailureTarget` or `SuccessCriteriaMet`",
	flag: "interim-stuck", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: 6 * time.Hour},
}, {
	// Without a Zombie threshold: another controller's use of the Job is unknown here.
	reasons:     []reasonText{{ReasonExternallyManaged, "Check the state of the Job in the controller that spec.managedBy names."}},
	check:       checkExternallyManaged,
	description: "is unfinished and has another controller in `managedBy`, so that no rule about its progress applies", ageFrom: "its creation",
	flag: "externally-managed", defaults: Threshold{Suspicious: oneDay},
}, {
	reasons:     []reasonText{{ReasonSuspendedTooLong, "Resume the Job by setting spec.suspend to false, check the queue that admits it, or delete it."}},
	check:       checkSuspendedTooLong,
	description: "is suspended", ageFrom: "its suspension",
	flag: "suspended-too-long", defaults: Threshold{Suspicious: 7 * oneDay, Zombie: 30 * oneDay},
}, {
	reasons:     []reasonText{{ReasonNeverStarted, "Check that kube-controller-manager runs and may write Jobs."}},
	check:       checkNeverStarted,
	description: "has no `startTime`", ageFrom: "its creation or resumption",
	flag: "never-started", defaults: Threshold{Suspicious: 10 * time.Minute, Zombie: oneDay},
}, {
	reasons:     []reasonText{{ReasonPausedByParallelism, "Raise spec.parallelism to continue, or delete the Job."}},
	check:       checkPausedByParallelism,
	description: "has `parallelism: 0`", ageFrom: "its last edit",
	flag: "paused-by-parallelism", defaults: Threshold{Suspicious: 7 * oneDay},
}, {
	reasons:     []reasonText{{ReasonDeadlineNotEnforced, "Check that kube-controller-manager runs, then delete the Job."}},
	check:       checkDeadlineNotEnforced,
	description: "exceeded `activeDeadlineSeconds` and did not fail", ageFrom: "its deadline",
	flag: "deadline-not-enforced", defaults: Threshold{Suspicious: 10 * time.Minute, Zombie: time.Hour},
}, {
	reasons: []reasonText{{
		ReasonNoActivePods,
		"Run kubectl yardmaster report explain NAME: a quota, an admission policy or a missing ServiceAccount may refuse its Pods.",
	}},
	check:       checkNoActivePods,
	description: "started and has no Pods", ageFrom: "the last change of its status",
	flag: "no-active-pods", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
}, {
	reasons: []reasonText{{
		ReasonNoReadyPods,
		"Run kubectl yardmaster report explain NAME: its Pods may fit no node, lack an image, or crash.",
	}},
	check:       checkNoReadyPods,
	description: "has active Pods, of which none is ready", ageFrom: "the last change of its status",
	flag: "no-ready-pods", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
}, {
	reasons: []reasonText{{
		ReasonRunningTooLong,
		"Check that the Job makes progress. If it does, set activeDeadlineSeconds or the annotation yardmaster.dev/report-running-too-long.",
	}},
	check:       checkRunningTooLong,
	description: "runs without a deadline", ageFrom: "its start",
	flag: "running-too-long", defaults: Threshold{Suspicious: oneDay, Zombie: 7 * oneDay},
}, {
	reasons:     []reasonText{{ReasonOrphaned, "Delete the Job: without its CronJob, no history limit applies to it."}},
	check:       checkOrphaned,
	description: "was created by a CronJob and has no controller",
}}

// Classify returns the finding of the first rule that matches the Job now, or CategoryHealthy.
func Classify(job *batchv1.Job, now time.Time, thresholds Thresholds) Finding {
	if job.Annotations[v1alpha1.AnnotationReportIgnore] == "true" {
		return Finding{Category: CategoryIgnored}
	}
	facts := &jobFacts{Job: job, now: now}
	for i := range rules {
		facts.threshold = ptr.Deref(thresholds[rules[i].key()], Threshold{})
		if finding := rules[i].check(facts); finding != nil {
			return *finding
		}
	}
	return Finding{Category: CategoryHealthy}
}

// AllReasons returns the reasons of all rules in order of precedence.
func AllReasons() []Reason {
	var reasons []Reason
	for i := range rules {
		for _, text := range rules[i].reasons {
			reasons = append(reasons, text.reason)
		}
	}
	return reasons
}

// NextStep returns the next step for a Job with this reason; empty for an unknown reason.
func NextStep(reason Reason) string {
	for i := range rules {
		for _, text := range rules[i].reasons {
			if text.reason == reason {
				return text.next
			}
		}
	}
	return ""
}
