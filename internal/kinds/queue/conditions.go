package queue

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// maxMessageBytes bounds the message of a condition.
const maxMessageBytes = 1024

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

// setConditions sets the conditions, and keeps conditions without new information.
func setConditions(status *v1alpha1.QueueStatus, in *conditionInput) {
	set := func(kind string, state decision.State) {
		state.Message = decision.TruncateMessage(state.Message, maxMessageBytes)
		decision.SetState(&status.Conditions, in.Queue.Generation, metav1.NewTime(in.Now), kind, state)
	}
	setSummary(status, in.Observation, summaryOf(in))
	reachable := decision.True(v1alpha1.ReasonConnected, "The broker answers")
	if problem := in.unreachable(); problem != nil {
		reachable = decision.False(problem.Reason, problem.Message)
	}
	set(v1alpha1.ConditionBrokerReachable, reachable)
	if in.unreachable() == nil || !OwnsQueue(in.Queue, in.Effective.Broker) { // otherwise, the last comparison is still known
		set(v1alpha1.ConditionConfigSynced, configSynced(in))
	}
	if !in.isDeleted() {
		set(v1alpha1.ConditionReplicated, replicated(in))
	}
	if status.Dead != nil {
		set(v1alpha1.ConditionDeadLettersPresent, deadLettersPresent(*status.Dead, in.Effective.DeadLetter))
	} else if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDeadLettersPresent) == nil {
		set(v1alpha1.ConditionDeadLettersPresent, isUnknown(notObserved))
	}
	if in.blocked != nil {
		set(v1alpha1.ConditionBlocked, decision.True(in.blocked.Reason, in.blocked.Message))
	}
}

func setSummary(status *v1alpha1.QueueStatus, o *Observation, summary decision.Summary) {
	summary.Message = decision.TruncateMessage(summary.Message, maxMessageBytes)
	decision.Set(&status.Conditions, o.Queue.Generation, metav1.NewTime(o.Now), summary)
}

// summaryOf returns the conditions Ready, Reconciling and Stalled; see docs/conditions.md. The first state that applies
// decides.
func summaryOf(in *conditionInput) decision.Summary {
	notReady := func(progress decision.Progress, reason, message string) decision.Summary {
		return decision.Summary{Ready: metav1.ConditionFalse, Progress: progress, Reason: reason, Message: message}
	}
	ready := func(reason, message string) decision.Summary {
		return decision.Summary{Ready: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	problem, stranded := in.unreachable(), in.History.Stranded
	limit, arriving, isBelow := rateBelowArrivals(in.Effective.RateLimit, in.history)
	switch {
	case in.isDeleted():
		return notReady(decision.InProgress, v1alpha1.ReasonDeleting, "The Queue is being deleted")
	case problem != nil:
		progress := decision.InProgress // it can end by itself, for example when a Secret is created later
		switch problem.Reason {
		case v1alpha1.ReasonSecretInvalid, v1alpha1.ReasonURLInvalid, v1alpha1.ReasonUnauthorized, v1alpha1.ReasonRefusedByBroker:
			progress = decision.Stuck // somebody has to correct it
		}
		return notReady(progress, problem.Reason, problem.Message)
	case in.BrokerError != nil || refusesStorage(in.result):
		state := configSynced(in)
		return notReady(decision.Stuck, state.Reason, state.Message)
	case hasRemainingDrift(in.result):
		return notReady(decision.Stuck, v1alpha1.ReasonDrifted, configSynced(in).Message)
	case !stranded.Since.IsZero() && in.Now.Sub(stranded.Since) > 2*in.SweepInterval: // a sweep takes less time to rescue them
		number := "Some messages"
		if stranded.Number != nil {
			number = countNoun(*stranded.Number, "message")
		}
		return notReady(decision.InProgress, v1alpha1.ReasonMessagesStranded, fmt.Sprintf(
			"Stranded since %s: %s that the broker does not deliver, and that may be among those that workers hold. "+
				"They become dead letters when inFlight is 0",
			stranded.Since.UTC().Format(time.RFC3339), number))
	case in.Queue.Spec.Suspend:
		return ready(v1alpha1.ReasonSuspended, "The queue is suspended: workers get no messages")
	case in.result != nil && in.result.EvictionPolicy != "":
		return ready(v1alpha1.ReasonMessagesEvictable, fmt.Sprintf("The server may delete messages when its memory is full: its maxmemory-policy is %s, should be noeviction",
			in.result.EvictionPolicy))
	case isBelow:
		return ready(v1alpha1.ReasonRateBelowArrivals, fmt.Sprintf("The backlog grows by %s messages per second: %s arrive, and rateLimit lets workers start %s",
			rateQuantity(arriving-limit), rateQuantity(arriving), rateQuantity(limit)))
	}
	message := "The queue accepts messages and delivers them to workers"
	if replicated(in).Status == metav1.ConditionFalse {
		message += ", but is not fully replicated: see the condition Replicated"
	}
	if in.result != nil && in.result.Enforcement[broker.FieldDelayed].By == broker.NotEnforced {
		message += ", and refuses delayed messages: " + in.result.Enforcement[broker.FieldDelayed].Message
	}
	return ready(v1alpha1.ReasonReady, message)
}

func configSynced(in *conditionInput) decision.State {
	problem := in.unreachable()
	switch {
	case conflictIn(in.BrokerError) != nil:
		return decision.False(v1alpha1.ReasonOwnedByOtherQueue, conflictMessage(in.Observation, conflictIn(in.BrokerError)))
	case in.isDeleted() && problem == nil:
		return decision.False(v1alpha1.ReasonDeleting, "The Queue is being deleted")
	case problem != nil:
		return isUnknown(*problem)
	case in.BrokerError != nil && !OwnsQueue(in.Queue, in.Effective.Broker):
		return isUnknown(decision.Problem{Reason: v1alpha1.ReasonRefusedByBroker, Message: in.BrokerError.Error()})
	case in.BrokerError != nil:
		return decision.False(v1alpha1.ReasonRefusedByBroker, in.BrokerError.Error())
	case refusesStorage(in.result):
		return decision.False(v1alpha1.ReasonRefusedByBroker, "The queue keeps the storage that it has: "+in.result.Storage.Refusal)
	case hasRemainingDrift(in.result):
		return decision.False(v1alpha1.ReasonDrifted, "Changed by someone else: "+formatDrift(in.result.Drift))
	}
	if missing := unenforcedFields(in.Observation, in.result); len(missing) > 0 {
		return decision.False(v1alpha1.ReasonUnsupported, "Not enforced: "+strings.Join(missing, ", "))
	}
	if len(in.result.RetiringPriorities) > 0 {
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

func joinSome(texts []string, separator string) string {
	const maxTexts = 5
	joined := strings.Join(texts[:min(maxTexts, len(texts))], separator)
	if more := len(texts) - maxTexts; more > 0 {
		joined += fmt.Sprintf(" and %d more", more)
	}
	return joined
}

// OwnsQueue reports whether the status of a Queue proves that it owns the queue status.name on this broker: the condition
// ConfigSynced is Unknown until the broker confirms it.
func OwnsQueue(q *v1alpha1.Queue, on *v1alpha1.Broker) bool {
	synced := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionConfigSynced)
	return q.Status.Name != "" && synced != nil && synced.Status != metav1.ConditionUnknown && !HasOtherOwner(q) &&
		q.Status.Effective != nil && equality.Semantic.DeepEqual(q.Status.Effective.Broker, on)
}

// HasOtherOwner reports whether another Queue owns the queue of a Queue on the broker.
func HasOtherOwner(q *v1alpha1.Queue) bool {
	return decision.FindReason(q.Status.Conditions, v1alpha1.ConditionConfigSynced, v1alpha1.ReasonOwnedByOtherQueue) != nil
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

// deadLettersPresent returns True from deadLetter.alertThreshold on; the default is 1.
func deadLettersPresent(deadLetters int64, spec *v1alpha1.DeadLetter) decision.State {
	threshold := int64(1)
	if spec != nil {
		threshold = cmp.Or(ptr.Deref(spec.AlertThreshold, 1), 1)
	}
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
