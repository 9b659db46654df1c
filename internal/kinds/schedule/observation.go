package schedule

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Observation is the input of a decision. Decide does not change it.
type Observation struct {
	// Schedule as last read. It may be stale: the decision's status is written only over exactly this version.
	Schedule *v1alpha1.Schedule
	// Runs whose controller is the Schedule, as last read. They may be stale, and a run that is missing here may exist.
	Runs []Run
	// KindDisabled is true if the controller of the runs' kind does not run.
	KindDisabled bool
	// NotReady is why messages cannot be sent to the Queue now; nil if they can.
	NotReady *decision.Problem
	// Sent is true if the broker has confirmed the pending message. NotSent is why the message is certainly not in its queue: the first
	// attempt to send it failed before the broker could store it. Both are results of carrying out the decision on this
	// observation.
	Sent    bool
	NotSent *decision.Problem
	// Now is the time of the decision.
	Now time.Time
	// Refusal of the run by the API server when the decision on this observation was carried out.
	Refusal *decision.Refusal
	// Answers are the runs about which earlier decisions on this observation asked, by name, as read from the API server; nil if no such
	// run exists.
	Answers map[string]*Run
}

// Run is an object that a Schedule started.
type Run struct {
	Name string
	UID  types.UID
	// ScheduledTime of the run; zero if its annotation was removed.
	ScheduledTime time.Time
	// RerunID of the request that the run belongs to; empty if its time is of the timetable.
	RerunID string
	// CreationTime of the object.
	CreationTime time.Time
	// IsFinished is true if the run has ended. HasSucceeded and CompletionTime say how and when.
	IsFinished, HasSucceeded bool
	CompletionTime           time.Time
	// Failure says why a finished run has not succeeded.
	Failure string
	// IsArchiving is true while the logs of a finished run are being archived, which takes a limited time.
	IsArchiving bool
	// IsDeleted is true if the deletion of the object was requested.
	IsDeleted bool
	// Object to delete.
	Object decision.Object
}

// orderTime is when a run was due, or was created on request.
func (r *Run) orderTime() time.Time {
	if r.ScheduledTime.IsZero() || r.RerunID != "" {
		return r.CreationTime
	}
	return r.ScheduledTime
}

// Decision contains the actions in their order: record Status if it has changed, emit Events, then act on the remaining fields,
// but only if the Schedule is still the observed version.
type Decision struct {
	// Question is the name of a run that must be read from the API server before anything is done; empty without one.
	Question string

	// Status to record. If that fails, no action may follow.
	Status v1alpha1.ScheduleStatus
	// StatusChanged is true if Status differs from the stored status.
	StatusChanged bool
	// Events about the changes of Status.
	Events []decision.Event
	// Missed are the times that this decision counts as missed, by reason.
	Missed map[string]int64
	// Finished is the number of previously active runs that have ended, by result: succeeded or failed.
	Finished map[string]int64
	// Started is the run that this decision counts as started; nil without one.
	Started *StartedRun

	// DeleteRuns are replaced runs and old runs.
	DeleteRuns []Run
	// CreateRun is the run to create, or the message to send; nil without one.
	CreateRun *v1alpha1.ScheduledRun
	// IsFirstAttempt is true if the message to send was certainly not sent before.
	IsFirstAttempt bool

	// RequeueAfter is the time until the next decision if nothing happens before; 0: never.
	RequeueAfter time.Duration
}

// StartedRun is a run that was created.
type StartedRun struct {
	// Name of the run.
	Name string
	// Due is when the run had to start, jitter included.
	Due time.Time
	// Created is the creation time of the run.
	Created time.Time
}

// HasActions reports whether the decision changes anything but the status.
func (d *Decision) HasActions() bool { return len(d.DeleteRuns) > 0 || d.CreateRun != nil }

// RunOfSequentialJob returns the Run of a SequentialJob.
func RunOfSequentialJob(sj *v1alpha1.SequentialJob) Run {
	run := newRun(sj, sj.Status.CompletionTime, sj.Status.Phase == v1alpha1.PhaseCompleted)
	run.Failure = causeOf(sj.Status.Conditions, sj.Status.Reason)
	run.IsArchiving = sj.Status.Archive != nil && sj.Status.Archive.CompletionTime == nil
	return run
}

// RunOfSession returns the Run of an AgenticSession. A stopped session has ended: only a user can continue it.
func RunOfSession(s *v1alpha1.AgenticSession) Run {
	completed := s.Status.CompletionTime
	switch s.Status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
	case v1alpha1.SessionStopped:
		if last := len(s.Status.Attempts) - 1; completed == nil && last >= 0 {
			completed = s.Status.Attempts[last].CompletionTime
		}
		if completed == nil {
			completed = &s.CreationTimestamp
		}
	default:
		completed = nil
	}
	run := newRun(s, completed, s.Status.Phase == v1alpha1.SessionCompleted)
	run.Failure = causeOf(s.Status.Conditions, string(s.Status.Phase))
	return run
}

// maxCause is the length of the cause of a failure in bytes.
const maxCause = 512

// causeOf returns the reason and the message of the condition Ready, in which a run says why it has not succeeded.
func causeOf(conditions []metav1.Condition, otherwise string) string {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason == "" {
		return otherwise
	}
	return decision.TruncateMessage(decision.FormatReason(ready.Reason, ready.Message), maxCause)
}

// newRun returns a run that has ended if completed is set.
func newRun(object decision.Object, completed *metav1.Time, succeeded bool) Run {
	run := Run{
		Name: object.GetName(), UID: object.GetUID(), CreationTime: object.GetCreationTimestamp().Time,
		IsDeleted: object.GetDeletionTimestamp() != nil, Object: object,
		RerunID: object.GetAnnotations()[v1alpha1.AnnotationRerunID],
	}
	if due, err := time.Parse(time.RFC3339, object.GetAnnotations()[v1alpha1.AnnotationScheduledTime]); err == nil {
		run.ScheduledTime = due.UTC()
	}
	if completed != nil {
		run.IsFinished, run.HasSucceeded, run.CompletionTime = true, succeeded, completed.Time
	}
	return run
}
