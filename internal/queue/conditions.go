package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// maxMessage is how long a condition's message may be, in characters.
const maxMessage = 1024

// verdict is a condition to be.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) verdict { return verdict{metav1.ConditionTrue, reason, message} }

func no(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }

func unknown(t *Trouble) verdict { return verdict{metav1.ConditionUnknown, t.Reason, t.Message} }

func setConditions(q *v1alpha1.Queue, s *v1alpha1.QueueStatus, o *Observation, m Memory) {
	set := func(kind string, v verdict) {
		message := []rune(v.message)
		if len(message) > maxMessage {
			message = append(message[:maxMessage-1], '…')
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: v.status, Reason: v.reason, Message: string(message), ObservedGeneration: q.Generation,
		})
	}
	synced, conflict := syncedOf(q, o), conflictOf(o)
	set(v1alpha1.ConditionReady, readyOf(q, o, m, synced, conflict))
	set(v1alpha1.ConditionBrokerReachable, reachableOf(o))
	set(v1alpha1.ConditionConfigSynced, synced)
	set(v1alpha1.ConditionConflict, conflict)
	// What was known of these stays until it is known anew.
	notYet := verdict{metav1.ConditionUnknown, v1alpha1.ReasonPending, "not yet looked"}
	if o.Outcome != nil {
		set(v1alpha1.ConditionPolicyFullyEnforced, enforcedOf(s, o))
	} else if s.Enforcement == nil {
		set(v1alpha1.ConditionPolicyFullyEnforced, notYet)
	}
	if dead := s.Dead; dead != nil {
		set(v1alpha1.ConditionDeadLettersPresent, deadOf(*dead, threshold(&o.Effective)))
	} else if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDeadLettersPresent) == nil {
		set(v1alpha1.ConditionDeadLettersPresent, notYet)
	}
	switch {
	case o.Blocked != nil:
		set(v1alpha1.ConditionDeletionBlocked, yes(o.Blocked.Reason, o.Blocked.Message))
	case !q.DeletionTimestamp.IsZero():
		set(v1alpha1.ConditionDeletionBlocked, no(v1alpha1.ReasonNotBlocked, "the deletion goes on"))
	}
}

func reachableOf(o *Observation) verdict {
	if o.Unreachable != nil {
		return no(o.Unreachable.Reason, o.Unreachable.Message)
	}
	return yes(v1alpha1.ReasonConnected, "the broker answers")
}

// syncedOf tells whether the queue on the broker is as the spec says.
func syncedOf(q *v1alpha1.Queue, o *Observation) verdict {
	switch {
	case !q.DeletionTimestamp.IsZero():
		return no(v1alpha1.ReasonDeleting, "the Queue is being deleted")
	case o.Unreachable != nil:
		return unknown(o.Unreachable)
	case o.Failure != nil && broker.ClassOf(o.Failure) == broker.ClassConflict:
		return no(v1alpha1.ReasonOwnedByOtherQueue, o.Failure.Error())
	case o.Failure != nil:
		return no(v1alpha1.ReasonRefusedByBroker, o.Failure.Error())
	case o.Outcome == nil:
		return unknown(&Trouble{v1alpha1.ReasonPending, "not yet looked"})
	case len(o.Outcome.Drift) > 0 && !o.Outcome.Corrected:
		return no(v1alpha1.ReasonDrifted, "changed by hand: "+differences(o.Outcome.Drift))
	case len(o.Outcome.RetiringPriorities) > 0:
		return yes(v1alpha1.ReasonSynced, "kept until they are empty: the priorities "+strings.Join(o.Outcome.RetiringPriorities, ", "))
	}
	return yes(v1alpha1.ReasonSynced, "the queue on the broker is as the spec says")
}

// differences are told of in full where they are few.
func differences(all []broker.SettingDifference) string {
	const some = 5
	var texts []string
	for _, d := range all[:min(some, len(all))] {
		texts = append(texts, d.String())
	}
	if more := len(all) - some; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func conflictOf(o *Observation) verdict {
	if conflict := (*broker.OwnerConflictError)(nil); errors.As(o.Failure, &conflict) {
		return yes(v1alpha1.ReasonOwnedByOtherQueue, fmt.Sprintf("%s. If that Queue is gone for good, take over with the annotation %s: %q",
			conflict.Error(), AnnotationSupersedes, conflict.Owner.UID))
	}
	if o.Unreachable != nil {
		return unknown(o.Unreachable)
	}
	return no(v1alpha1.ReasonSynced, "no other Queue has this queue on the broker")
}

// enforcedOf tells whether somebody keeps to each field of the spec. What an engine
// cannot do besides, such as delaying messages, is in the enforcement alone.
func enforcedOf(s *v1alpha1.QueueStatus, o *Observation) verdict {
	var missed []string
	for field, by := range s.Enforcement {
		if by != v1alpha1.EnforcementUnsupported || field == string(broker.FieldDelayed) {
			continue
		}
		if why := o.Outcome.Enforcement[broker.QueueField(field)].Message; why != "" {
			field += " (" + why + ")"
		}
		missed = append(missed, field)
	}
	if len(missed) == 0 {
		return yes(v1alpha1.ReasonEnforced, "all fields of the spec are kept to")
	}
	slices.Sort(missed)
	return no(v1alpha1.ReasonUnsupported, "nobody keeps to "+strings.Join(missed, ", "))
}

func deadOf(dead, threshold int64) verdict {
	switch {
	case dead >= threshold:
		return yes(v1alpha1.ReasonDeadLetters, counted(dead, "dead letter"))
	case dead > 0:
		return no(v1alpha1.ReasonNoDeadLetters, fmt.Sprintf("%s, fewer than deadLetter.alertThreshold, %d", counted(dead, "dead letter"), threshold))
	}
	return no(v1alpha1.ReasonNoDeadLetters, "no dead letters")
}

func counted(number int64, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

func readyOf(q *v1alpha1.Queue, o *Observation, m Memory, synced, conflict verdict) verdict {
	switch {
	case !q.DeletionTimestamp.IsZero():
		return no(v1alpha1.ReasonDeleting, "the Queue is being deleted")
	case o.Unreachable != nil:
		return no(o.Unreachable.Reason, o.Unreachable.Message)
	case conflict.status == metav1.ConditionTrue:
		return no(conflict.reason, conflict.message)
	case synced.status != metav1.ConditionTrue:
		return verdict{synced.status, synced.reason, synced.message}
	case q.Spec.Paused:
		return yes(v1alpha1.ReasonPaused, "workers are given no messages")
	}
	if limit, arriving, below := rateBelowArrivals(o.Effective.RateLimit, m); below {
		return yes(v1alpha1.ReasonRateBelowArrivals, fmt.Sprintf(
			"rateLimit lets %s messages a second begin and %s arrive: the backlog grows by %s a second",
			quantity(limit), quantity(arriving), quantity(arriving-limit)))
	}
	return yes(v1alpha1.ReasonReady, "the queue takes messages, and workers get them")
}

// enough seconds to call a rate of arrivals steady.
const enough = 0.8 * float64(rateMemory/time.Second)

// rateBelowArrivals tells that the limit makes the backlog grow and grow.
func rateBelowArrivals(r *v1alpha1.RateLimit, m Memory) (limit, arriving float64, below bool) {
	of := rateLimit(r)
	if of == nil || m.Last == nil || m.Last.Ready == 0 || m.Rates.Seconds < enough {
		return 0, 0, false
	}
	limit, arriving = float64(of.Limit)/of.Per.Seconds(), m.Rates.Arriving()
	return limit, arriving, arriving > 1.05*limit
}
