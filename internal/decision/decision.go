// Package decision contains what the packages that decide share: events, problems and refusals, the three conditions of every
// kind, the classes of errors of the API server, and rules about children. It has no client, no clock and no I/O.
package decision

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Object is any object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Event is an event to emit about the object of a decision, once the reported status is stored.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type    string
	Reason  string
	Action  string
	Message string
	// Routine events may be left out under load: the status shows the same.
	Routine bool
}

// NormalEvent returns an event of type Normal.
func NormalEvent(reason, action, message string) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Action: action, Message: message}
}

// RoutineEvent returns an event of type Normal that may be left out under load.
func RoutineEvent(reason, action, message string) Event {
	event := NormalEvent(reason, action, message)
	event.Routine = true
	return event
}

// WarningEvent returns an event of type Warning.
func WarningEvent(reason, action, message string) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: reason, Action: action, Message: message}
}

// Problem keeps an object from fulfilling its spec, as its conditions report it.
type Problem struct {
	Reason, Message string
}

// Refusal is an object that the API server refused.
type Refusal struct {
	Class Class
	// Kind and Name of the refused object.
	Kind, Name string
	// Step of a SequentialJob to which the object belongs; empty for objects of the whole run.
	Step string
	// Message of the API server.
	Message string
}

// AsRefusal completes the refusal of an object with the class and the message of an error. It returns nil without an error, or
// if the error is no refusal but has to be handled or retried.
func AsRefusal(err error, refused Refusal) *Refusal {
	switch refused.Class = ClassOf(err); refused.Class {
	case Invalid, PolicyDenied, QuotaExceeded, ServiceAccountMissing:
		refused.Message = strings.TrimSpace(err.Error())
		return &refused
	default:
		return nil
	}
}

// FormatReason joins a reason and a message, which may be empty.
func FormatReason(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// TruncateMessage returns a message as valid UTF-8 of at most maxBytes bytes. It marks the truncation, and never splits a
// character.
func TruncateMessage(message string, maxBytes int) string {
	const ellipsis = "…"
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if len(message) <= maxBytes {
		return message
	}
	end := maxBytes - len(ellipsis)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + ellipsis
}

// DeletionByTaintManager is the reason of the condition DisruptionTarget of a Pod that the Kubernetes controller for taints deletes, which
// exports no constant.
const DeletionByTaintManager = "DeletionByTaintManager"

// DeletionRequestTime returns when the deletion of an object was requested, in whole seconds. The API server sets
// deletionTimestamp to the end of the grace period, which is later. The object must be deleted.
func DeletionRequestTime(object metav1.Object) time.Time {
	grace := ptr.Deref(object.GetDeletionGracePeriodSeconds(), 0)
	return object.GetDeletionTimestamp().Add(-time.Duration(grace) * time.Second)
}

// NameTaken is the refusal of an object whose name belongs to an object of another owner.
func NameTaken(refused Refusal, ownerKind string) *Refusal {
	refused.Class = AlreadyExists
	refused.Message = fmt.Sprintf("%s %s already exists and does not belong to this %s; delete it", refused.Kind, refused.Name, ownerKind)
	return &refused
}

// Earliest returns the shortest wait. A wait of 0 means never.
func Earliest(waits ...time.Duration) time.Duration {
	earliest := time.Duration(0)
	for _, wait := range waits {
		if wait != 0 && (earliest == 0 || wait < earliest) {
			earliest = wait
		}
	}
	return earliest
}

// Timer computes when to decide again.
type Timer struct {
	// Now is the time of the decision.
	Now time.Time
	// RequeueAfter is the time until the next decision; 0: never.
	RequeueAfter time.Duration
}

// RequeueWithin schedules the next decision after at most this positive time.
func (t *Timer) RequeueWithin(wait time.Duration) {
	t.RequeueAfter = Earliest(t.RequeueAfter, max(wait, time.Millisecond))
}

// HasReached reports whether the due time has come. Otherwise it schedules a decision at that time.
func (t *Timer) HasReached(due time.Time) bool {
	left := due.Sub(t.Now)
	if left > 0 {
		t.RequeueWithin(left)
	}
	return left <= 0
}

// CompareTrueFirst orders true before false.
func CompareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// Progress is the state of an object's work on its spec.
type Progress int

// The kinds of progress.
const (
	// Settled objects have nothing more to do for their spec: the work is done, suspended or stopped.
	Settled Progress = iota
	// InProgress objects are being worked on, or wait for an event that can happen by itself: a Job ends, a quota has room, an
	// object is created later.
	InProgress
	// Stuck objects make no progress until someone changes them or their dependencies.
	Stuck
)

// Summary is the state of an object.
type Summary struct {
	Ready metav1.ConditionStatus
	// Reason and Message of all three conditions.
	Reason, Message string
	Progress        Progress
}

// Set sets the three conditions of every kind, as kstatus reads them: Ready, Reconciling and Stalled. docs/conditions.md lists
// the result for each state.
func Set(conditions *[]metav1.Condition, generation int64, now metav1.Time, s Summary) {
	SetState(conditions, generation, now, v1alpha1.ConditionReady, State{s.Ready, s.Reason, s.Message})
	SetState(conditions, generation, now, v1alpha1.ConditionReconciling, StateOf(s.Progress == InProgress, s.Reason, s.Message))
	SetState(conditions, generation, now, v1alpha1.ConditionStalled, StateOf(s.Progress == Stuck, s.Reason, s.Message))
}

// State is the value of a condition.
type State struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

// True returns the state of a condition that is True.
func True(reason, message string) State { return State{metav1.ConditionTrue, reason, message} }

// False returns the state of a condition that is False.
func False(reason, message string) State { return State{metav1.ConditionFalse, reason, message} }

// StateOf returns the state of a condition that is True or False.
func StateOf(isTrue bool, reason, message string) State {
	return State{StatusOf(isTrue), reason, message}
}

// StatusOf returns the status of a condition that is either true or false.
func StatusOf(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// maxMessageBytes is the limit of metav1.Condition. A message can quote a field of any length.
const maxMessageBytes = 32768

// SetState sets one condition. It shortens a long message.
func SetState(conditions *[]metav1.Condition, generation int64, now metav1.Time, kind string, state State) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: state.Status, Reason: state.Reason, Message: TruncateMessage(state.Message, maxMessageBytes),
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// FindReason returns the condition of a kind if it has this reason, whatever its status; otherwise nil.
func FindReason(conditions []metav1.Condition, kind, reason string) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Reason == reason {
		return c
	}
	return nil
}

// DurationOr returns a duration of a spec, or its default.
func DurationOr(given *v1alpha1.Duration, otherwise time.Duration) time.Duration {
	if given == nil {
		return otherwise
	}
	return given.Duration.Duration
}

// RetryBackoff returns the time before the next attempt, after a number of earlier retries: as for the Pods of a Job,
// unless the retry has other values. A backoff that is longer than the default of maxBackoff is obeyed.
func RetryBackoff(retry *v1alpha1.Retry, earlier int32) time.Duration {
	first := DurationOr(retry.Backoff, defaultBackoff)
	longest := DurationOr(retry.MaxBackoff, max(first, defaultMaxBackoff))
	return time.Duration(min(float64(first)*math.Pow(RetryFactor(retry), float64(earlier)), float64(longest)))
}

const (
	defaultBackoff    = 10 * time.Second
	defaultMaxBackoff = 10 * time.Minute
)

// The default of a retry's factor, and its bounds, which the CustomResourceDefinitions check.
const defaultFactor, minFactor, maxFactor = 2, 1, 10

// RetryFactor returns the factor by which the time before a retry grows.
func RetryFactor(retry *v1alpha1.Retry) float64 {
	factor, err := strconv.ParseFloat(string(ptr.Deref(retry.Factor, "")), 64)
	if err != nil {
		return defaultFactor
	}
	return min(max(factor, minFactor), maxFactor)
}
