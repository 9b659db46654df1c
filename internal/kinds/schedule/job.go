package schedule

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// ScheduledTimeHeader is the header with the time of a job, in RFC 3339 and UTC.
	ScheduledTimeHeader = "Scheduled-Time"
	// deduplicateFor is the time for which the broker must recognize that a job was sent before.
	deduplicateFor = 2 * time.Minute
	// resendWindow is the time after its first attempt in which a job may be sent again. It is shorter than
	// deduplicateFor, because the clocks of the operator and the broker differ, and requests take time.
	resendWindow = time.Minute
	// maxSetBack is by how much the clock may have been set back since a job was first sent. With more, it is not known how
	// long ago that was.
	maxSetBack = 10 * time.Second
)

// NewJob returns the job of a time. queue is the name of the queue on the broker.
func NewJob(s *v1alpha1.Schedule, queue, id string, due time.Time) *broker.OutgoingJob {
	spec := s.Spec.Job
	job := &broker.OutgoingJob{
		Queue: queue, ID: id, HasChosenID: true, DeduplicateFor: deduplicateFor, Kind: spec.Kind, Priority: spec.Priority,
		Headers: map[string][]string{},
	}
	for name, value := range spec.Headers {
		job.Headers[name] = []string{value}
	}
	if spec.Payload != nil {
		job.Payload = spec.Payload.Raw
		job.Headers["Content-Type"] = []string{"application/json"}
	}
	if !due.IsZero() {
		job.Headers[ScheduledTimeHeader] = []string{formatTime(due)}
	}
	if spec.Timeout != nil {
		job.Timeout = spec.Timeout.Duration.Duration
	}
	return job
}

// resolveJob decides about a time whose job is being sent. It reports whether further times can be decided. A job is sent
// again only while the broker certainly recognizes it: afterwards, whether it was sent remains unknown.
func (e *evaluation) resolveJob(pending *v1alpha1.PendingRun) bool {
	due := pending.ScheduledTime.Time
	switch {
	case e.Sent:
		e.countStarted(e.Now)
		return true
	case e.Refusal != nil:
		return e.missPending(v1alpha1.MissedRefused, e.Refusal.Message)
	case e.NotSent != nil && e.spec.Suspend:
		return e.missPending(v1alpha1.MissedSuspended, "")
	case e.NotSent != nil && e.isTooLate(due):
		return e.missPending(v1alpha1.MissedTooLate, e.NotSent.Message)
	case e.NotSent != nil:
		pending.Since = nil
		e.problem = e.NotSent
		e.retryLater(due)
		return false
	}
	if pending.Since == nil {
		e.startSending()
	} else if elapsed := e.Now.Sub(pending.Since.Time); elapsed <= -maxSetBack || elapsed >= resendWindow {
		return e.missPending(v1alpha1.MissedOutcomeUnknown, "the broker did not confirm the job in time")
	}
	e.decision.CreateRun = pending
	return false
}

// startSending records that the pending job may be in its queue from now on.
func (e *evaluation) startSending() {
	e.status.Pending.Since = e.now.DeepCopy()
	e.decision.IsFirstAttempt = true
}
