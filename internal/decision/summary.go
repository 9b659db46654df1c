package decision

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

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
