package queue

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// maxMessageBytes bounds the message of a condition.
const maxMessageBytes = 1024

// conditionInput is what the conditions of a Queue are derived from.
type conditionInput struct {
	*Observation
	// result of the last comparison with the spec; nil if unknown.
	result  *broker.EnsureResult
	blocked *decision.Problem
	history StatsHistory
}

func isUnknown(p decision.Problem) decision.State {
	return decision.State{Status: metav1.ConditionUnknown, Reason: p.Reason, Message: p.Message}
}

var notObserved = decision.Problem{Reason: v1alpha1.ReasonPending, Message: "Not observed yet"}

// setConditions keeps conditions about which nothing new is known.
func setConditions(status *v1alpha1.QueueStatus, in *conditionInput) {
	set := func(kind string, state decision.State) {
		state.Message = decision.TruncateMessage(state.Message, maxMessageBytes)
		decision.SetState(&status.Conditions, in.Queue.Generation, metav1.NewTime(in.Now), kind, state)
	}
	setSummary(status, in.Observation, summaryOf(in))
	set(v1alpha1.ConditionBrokerReachable, brokerReachable(in))
	set(v1alpha1.ConditionConfigSynced, configSynced(in))
	set(v1alpha1.ConditionConflict, ownerConflict(in))
	if in.result != nil {
		set(v1alpha1.ConditionPolicyFullyEnforced, policyFullyEnforced(status.Enforcement, in.result))
	} else if status.Enforcement == nil {
		set(v1alpha1.ConditionPolicyFullyEnforced, isUnknown(notObserved))
	}
	if !in.isDeleted() {
		set(v1alpha1.ConditionReplicated, replicated(in))
	}
	if status.Dead != nil {
		set(v1alpha1.ConditionDeadLettersPresent, deadLettersPresent(*status.Dead, alertThreshold(&in.Effective)))
	} else if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDeadLettersPresent) == nil {
		set(v1alpha1.ConditionDeadLettersPresent, isUnknown(notObserved))
	}
	switch {
	case in.blocked != nil:
		set(v1alpha1.ConditionDeletionBlocked, decision.True(in.blocked.Reason, in.blocked.Message))
	case in.isDeleted():
		set(v1alpha1.ConditionDeletionBlocked, decision.False(v1alpha1.ReasonNotBlocked, "The deletion is in progress"))
	}
}

func setSummary(status *v1alpha1.QueueStatus, o *Observation, summary decision.Summary) {
	summary.Message = decision.TruncateMessage(summary.Message, maxMessageBytes)
	decision.Set(&status.Conditions, o.Queue.Generation, metav1.NewTime(o.Now), summary)
}

// summaryChecks are the states of a Queue other than Ready. The first that applies decides.
var summaryChecks = []func(*conditionInput) (decision.Summary, bool){
	checkDeleting, checkUnreachable, checkRefused, checkDrifted, checkStranded, checkPaused, checkRateBelowArrivals,
}

// summaryOf returns the conditions Ready, Reconciling and Stalled; see docs/conditions.md.
func summaryOf(in *conditionInput) decision.Summary {
	for _, check := range summaryChecks {
		if summary, found := check(in); found {
			return summary
		}
	}
	message := "The queue accepts messages and delivers them to workers"
	if replicated(in).Status == metav1.ConditionFalse {
		message += ", but is not fully replicated: see the condition Replicated"
	}
	return decision.Summary{Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: message}
}

func pendingSummary(message string) decision.Summary {
	return decision.Summary{
		Ready: metav1.ConditionUnknown, Progress: decision.InProgress, Reason: v1alpha1.ReasonPending, Message: message,
	}
}

func checkDeleting(in *conditionInput) (decision.Summary, bool) {
	return decision.Summary{
		Ready: metav1.ConditionFalse, Progress: decision.InProgress, Reason: v1alpha1.ReasonDeleting, Message: "The Queue is being deleted",
	}, in.isDeleted()
}

// checkUnreachable distinguishes what can happen by itself, such as a Secret that is created
// later, from what somebody has to correct.
func checkUnreachable(in *conditionInput) (decision.Summary, bool) {
	problem := in.unreachable()
	if problem == nil {
		return decision.Summary{}, false
	}
	summary := decision.Summary{Ready: metav1.ConditionFalse, Progress: decision.InProgress, Reason: problem.Reason, Message: problem.Message}
	switch problem.Reason {
	case v1alpha1.ReasonSecretInvalid, v1alpha1.ReasonUnauthorized, v1alpha1.ReasonRefusedByBroker:
		summary.Progress = decision.Stuck
	}
	return summary, true
}

func checkRefused(in *conditionInput) (decision.Summary, bool) {
	state := configSynced(in)
	if conflict := ownerConflict(in); conflict.Status == metav1.ConditionTrue {
		state = conflict
	}
	return decision.Summary{
		Ready: metav1.ConditionFalse, Progress: decision.Stuck, Reason: state.Reason, Message: state.Message,
	}, in.BrokerError != nil || refusesStorage(in.result)
}

func checkDrifted(in *conditionInput) (decision.Summary, bool) {
	return decision.Summary{
		Ready: metav1.ConditionFalse, Progress: decision.Stuck, Reason: v1alpha1.ReasonDrifted, Message: configSynced(in).Message,
	}, hasRemainingDrift(in.result)
}

func checkPaused(in *conditionInput) (decision.Summary, bool) {
	return decision.Summary{
		Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonPaused, Message: "The queue is paused: workers get no messages",
	}, in.Queue.Spec.Paused
}

func checkRateBelowArrivals(in *conditionInput) (decision.Summary, bool) {
	limit, arriving, found := rateBelowArrivals(in.Effective.RateLimit, in.history)
	return decision.Summary{
		Ready: metav1.ConditionTrue, Reason: v1alpha1.ReasonRateBelowArrivals, Message: fmt.Sprintf(
			"The backlog grows by %s messages per second: %s arrive, and rateLimit lets workers start %s",
			rateQuantity(arriving-limit), rateQuantity(arriving), rateQuantity(limit)),
	}, found
}

func brokerReachable(in *conditionInput) decision.State {
	if problem := in.unreachable(); problem != nil {
		return decision.False(problem.Reason, problem.Message)
	}
	return decision.True(v1alpha1.ReasonConnected, "The broker answers")
}

// configSynced reports whether the queue on the broker matches the spec.
func configSynced(in *conditionInput) decision.State {
	problem := in.unreachable()
	switch {
	case in.isDeleted():
		return decision.False(v1alpha1.ReasonDeleting, "The Queue is being deleted")
	case problem != nil:
		return isUnknown(*problem)
	case conflictIn(in.BrokerError) != nil:
		return decision.False(v1alpha1.ReasonOwnedByOtherQueue, conflictMessage(in.Observation, conflictIn(in.BrokerError)))
	case in.BrokerError != nil:
		return decision.False(v1alpha1.ReasonRefusedByBroker, in.BrokerError.Error())
	case refusesStorage(in.result):
		return decision.False(v1alpha1.ReasonRefusedByBroker, "The queue keeps the storage that it has: "+in.result.Storage.Refusal)
	case hasRemainingDrift(in.result):
		return decision.False(v1alpha1.ReasonDrifted, "Changed by someone else: "+formatDrift(in.result.Drift))
	case len(in.result.RetiringPriorities) > 0:
		return decision.True(v1alpha1.ReasonSynced, "Removed priorities stay on the broker until they are empty: "+strings.Join(in.result.RetiringPriorities, ", "))
	}
	return decision.True(v1alpha1.ReasonSynced, "The queue on the broker matches the spec")
}

func hasRemainingDrift(result *broker.EnsureResult) bool {
	return result != nil && len(result.Drift) > 0 && !result.Corrected
}

// formatDrift names at most five settings.
func formatDrift(drift []broker.SettingDifference) string {
	var texts []string
	for _, d := range drift {
		texts = append(texts, d.String())
	}
	return joinSome(texts, "; ")
}

// joinSome joins at most five texts.
func joinSome(texts []string, separator string) string {
	const maxTexts = 5
	joined := strings.Join(texts[:min(maxTexts, len(texts))], separator)
	if more := len(texts) - maxTexts; more > 0 {
		joined += fmt.Sprintf(" and %d more", more)
	}
	return joined
}

func ownerConflict(in *conditionInput) decision.State {
	if conflict := conflictIn(in.BrokerError); conflict != nil {
		return decision.True(v1alpha1.ReasonOwnedByOtherQueue, conflictMessage(in.Observation, conflict))
	}
	problem := in.unreachable()
	switch {
	case in.result != nil, in.isDeleted() && problem == nil, OwnsQueue(in.Queue, in.Effective.Broker):
		return decision.False(v1alpha1.ReasonSynced, "No other Queue owns the queue on the broker")
	case problem != nil:
		return isUnknown(*problem)
	}
	return isUnknown(decision.Problem{Reason: v1alpha1.ReasonRefusedByBroker, Message: in.BrokerError.Error()})
}

// OwnsQueue reports whether the status of a Queue proves that it owns the queue status.name on this
// broker: the broker confirmed it when it last answered.
func OwnsQueue(q *v1alpha1.Queue, on *v1alpha1.Broker) bool {
	return q.Status.Name != "" && meta.IsStatusConditionFalse(q.Status.Conditions, v1alpha1.ConditionConflict) &&
		q.Status.Effective != nil && equality.Semantic.DeepEqual(q.Status.Effective.Broker, on)
}

// conflictMessage names the owner only if it is in the Queue's own namespace.
func conflictMessage(o *Observation, conflict *broker.OwnerConflictError) string {
	owner, hint := conflict.Owner, "; create this Queue again with another name"
	switch {
	case owner.SharesScope(BrokerQueueOwner(o.Queue, o.ClusterID)):
		_, name, _ := strings.Cut(owner.Name, "/")
		return fmt.Sprintf("The queue %s on the broker belongs to Queue %s; this Queue takes it over when that one is deleted", conflict.Queue, name)
	case owner == broker.QueueOwner{}:
		return fmt.Sprintf("The queue %s exists on the operator's broker, and no Queue created it%s", conflict.Queue, hint)
	}
	return fmt.Sprintf("The queue %s on the broker belongs to a Queue of another namespace or cluster%s", conflict.Queue, hint)
}

func deadLettersPresent(deadLetters, threshold int64) decision.State {
	text := "The queue has " + countNoun(deadLetters, "dead letter")
	switch {
	case deadLetters >= threshold:
		return decision.True(v1alpha1.ReasonDeadLetters, text)
	case deadLetters > 0:
		return decision.False(v1alpha1.ReasonNoDeadLetters, fmt.Sprintf("%s, fewer than deadLetter.alertThreshold (%d)", text, threshold))
	}
	return decision.False(v1alpha1.ReasonNoDeadLetters, "The queue has no dead letters")
}

func countNoun(number int64, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
