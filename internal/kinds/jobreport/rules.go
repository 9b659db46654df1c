package jobreport

import (
	"strconv"
	"strings"
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
	// command begins the next step. It changes nothing unless the sentence says so.
	command string
}

func (r *staleRule) key() Reason { return r.reasons[0].reason }

const oneDay = 24 * time.Hour

const (
	nextFailedIndexes = "Read the logs of the Pods whose indexes are in status.failedIndexes."
	nextCleanup       = "Delete the Job, and set ttlSecondsAfterFinished in the manifest that creates it."
	nextTermination   = "Find the Pods that do not terminate, and check whether their nodes still exist."
)

// The commands of several reasons. NAME and NAMESPACE stand for the Job's.
const (
	commandExplain    = "kubectl yardmaster report explain NAME -n NAMESPACE"
	commandDelete     = "kubectl delete job NAME -n NAMESPACE"
	commandPods       = "kubectl get pods -n NAMESPACE -l batch.kubernetes.io/job-name=NAME -o wide"
	commandJob        = "kubectl get job NAME -n NAMESPACE -o yaml --show-managed-fields"
	commandController = "kubectl get lease kube-controller-manager -n kube-system"
)

// rules are in order of precedence: the first rule that matches a Job wins. Flags, documentation, alerts and the texts of
// findings are generated from this table.
var rules = []staleRule{{
	reasons: []reasonText{{
		ReasonUnknown,
		"Find out which controller wrote the Job's conditions. The Job controller makes no progress with it.",
		commandJob,
	}},
	check:       checkContradictions,
	description: "has contradictory conditions or an unknown completion mode",
}, {
	reasons: []reasonText{{
		ReasonStuckTerminating,
		"Check the nodes of Pods that do not terminate. If the controller of the finalizer no longer runs, remove the finalizer with kubectl edit.",
		commandPods,
	}},
	check:       checkStuckTerminating,
	description: "was deleted but still exists", ageFrom: "its deletion",
	flag: "stuck-terminating", defaults: Threshold{Suspicious: 15 * time.Minute, Zombie: time.Hour},
}, {
	reasons:     []reasonText{{ReasonTTLNotEnforced, "Check that kube-controller-manager runs, then delete the Job.", commandController}},
	check:       checkTTLNotEnforced,
	description: "finished and was not deleted after `ttlSecondsAfterFinished`", ageFrom: "the end of that time",
	flag: "ttl-not-enforced", defaults: Threshold{Suspicious: time.Hour, Zombie: oneDay},
}, {
	// Without a Suspicious threshold: the next rule reports a recent failure.
	reasons:     []reasonText{{ReasonFailedLongAgo, nextCleanup, commandDelete}},
	check:       checkFailedLongAgo,
	description: "failed and has neither `ttlSecondsAfterFinished` nor a controller, such as a CronJob, that deletes it", ageFrom: "its failure",
	flag: "failed-long-ago", defaults: Threshold{Zombie: 7 * oneDay},
}, {
	reasons: []reasonText{
		{ReasonBackoffLimitExceeded, "Read why its Pods failed, fix the cause, and create the Job again.", commandExplain},
		{ReasonDeadlineExceeded, "Find out what the Job waited for. If it only needs more time, raise activeDeadlineSeconds.", commandExplain},
		{ReasonPodFailurePolicy, "Fix the cause of the exit code or Pod condition that the message names; its podFailurePolicy does not retry it.", commandExplain},
		{ReasonMaxFailedIndexesExceeded, nextFailedIndexes, commandExplain},
		{ReasonFailedIndexes, nextFailedIndexes, commandExplain},
		{ReasonFailedOther, "Read the condition Failed: another controller or a user wrote it.", commandJob},
	},
	check:       checkFailed,
	description: "failed for that reason",
}, {
	// Without a Zombie threshold: the Job takes up space and does no harm.
	reasons:     []reasonText{{ReasonFinishedNotCleaned, nextCleanup, commandDelete}},
	check:       checkFinishedNotCleaned,
	description: "succeeded and has neither `ttlSecondsAfterFinished` nor a controller that deletes it", ageFrom: "its completion",
	flag: "finished-not-cleaned", defaults: Threshold{Suspicious: 7 * oneDay},
}, {
	reasons:     []reasonText{{ReasonFailureTargetStuck, nextTermination, commandPods}, {ReasonSuccessCriteriaStuck, nextTermination, commandPods}},
	check:       checkInterimConditions,
	description: "is about to fail or to complete, but does not finish", ageFrom: "its condition `FailureTarget` or `SuccessCriteriaMet`",
	flag: "interim-stuck", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: 6 * time.Hour},
}, {
	// Without a Zombie threshold: another controller's use of the Job is unknown here.
	reasons:     []reasonText{{ReasonExternallyManaged, "Check the state of the Job in the controller that spec.managedBy names.", commandJob}},
	check:       checkExternallyManaged,
	description: "is unfinished and has another controller in `managedBy`, so that no rule about its progress applies", ageFrom: "its creation",
	flag: "externally-managed", defaults: Threshold{Suspicious: oneDay},
}, {
	reasons:     []reasonText{{ReasonSuspendedTooLong, "Resume the Job by setting spec.suspend to false, check the queue that admits it, or delete it.", `kubectl patch job NAME -n NAMESPACE --type=merge -p '{"spec":{"suspend":false}}'`}},
	check:       checkSuspendedTooLong,
	description: "is suspended", ageFrom: "its suspension",
	flag: "suspended-too-long", defaults: Threshold{Suspicious: 7 * oneDay, Zombie: 30 * oneDay},
}, {
	reasons:     []reasonText{{ReasonNeverStarted, "Check that kube-controller-manager runs and may write Jobs.", commandController}},
	check:       checkNeverStarted,
	description: "has no `startTime`", ageFrom: "its creation or resumption",
	flag: "never-started", defaults: Threshold{Suspicious: 10 * time.Minute, Zombie: oneDay},
}, {
	reasons:     []reasonText{{ReasonPausedByParallelism, "Raise spec.parallelism to continue, or delete the Job.", `kubectl patch job NAME -n NAMESPACE --type=merge -p '{"spec":{"parallelism":1}}'`}},
	check:       checkPausedByParallelism,
	description: "has `parallelism: 0`", ageFrom: "its last edit",
	flag: "paused-by-parallelism", defaults: Threshold{Suspicious: 7 * oneDay},
}, {
	reasons:     []reasonText{{ReasonDeadlineNotEnforced, "Check that kube-controller-manager runs, then delete the Job.", commandController}},
	check:       checkDeadlineNotEnforced,
	description: "exceeded `activeDeadlineSeconds` and did not fail", ageFrom: "its deadline",
	flag: "deadline-not-enforced", defaults: Threshold{Suspicious: 10 * time.Minute, Zombie: time.Hour},
}, {
	reasons: []reasonText{{
		ReasonNoActivePods,
		"Find out what refuses its Pods: a quota, an admission policy or a missing ServiceAccount.",
		commandExplain,
	}},
	check:       checkNoActivePods,
	description: "started and has no Pods", ageFrom: "the last change of its status",
	flag: "no-active-pods", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
}, {
	reasons: []reasonText{{
		ReasonNoReadyPods,
		"Find out what its Pods wait for: a node, an image, a Secret, an init container, or a sidecar that runs on after the work has ended.",
		commandExplain,
	}},
	check:       checkNoReadyPods,
	description: "has active Pods, of which none is ready", ageFrom: "the last change of its status",
	flag: "no-ready-pods", defaults: Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
}, {
	reasons: []reasonText{{
		ReasonRunningTooLong,
		"Check that the Job makes progress. If it does, set activeDeadlineSeconds or the annotation yardmaster.dev/report-running-too-long.",
		"kubectl logs job/NAME -n NAMESPACE --all-containers --tail=20",
	}},
	check:       checkRunningTooLong,
	description: "runs without a deadline", ageFrom: "its start",
	flag: "running-too-long", defaults: Threshold{Suspicious: oneDay, Zombie: 7 * oneDay},
}, {
	reasons:     []reasonText{{ReasonOrphaned, "Delete the Job: without its CronJob, no history limit applies to it.", commandDelete}},
	check:       checkOrphaned,
	description: "was created by a CronJob and has no controller",
}}

// Classify returns the finding of the first rule that matches the Job now, or CategoryHealthy. It does not know other Jobs: a
// failure can be superseded.
func Classify(job *batchv1.Job, now time.Time, thresholds Thresholds) Finding {
	remark := ""
	if stated, isStated := job.Annotations[v1alpha1.AnnotationReportIgnore]; isStated {
		isIgnored, err := strconv.ParseBool(stated)
		if isIgnored {
			return Finding{Category: CategoryIgnored}
		}
		if err != nil {
			remark = "; the annotation " + v1alpha1.AnnotationReportIgnore + " is neither true nor false"
		}
	}
	facts := &jobFacts{Job: job, now: now}
	for i := range rules {
		facts.threshold = ptr.Deref(thresholds[rules[i].key()], Threshold{})
		if finding := rules[i].check(facts); finding != nil {
			finding.Message = TruncateText(finding.Message, MaxMessageBytes-len(remark)) + remark
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

// NextStep returns a sentence about the next step for a Job with this reason, and a command that begins it. Both are empty for an
// unknown reason.
func NextStep(reason Reason, namespace, job string) (sentence, command string) {
	for i := range rules {
		for _, text := range rules[i].reasons {
			if text.reason == reason {
				return text.next, strings.NewReplacer("NAMESPACE", namespace, "NAME", job).Replace(text.command)
			}
		}
	}
	return "", ""
}
