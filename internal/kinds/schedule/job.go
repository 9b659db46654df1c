package schedule

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// ScheduledTimeHeader is the header with the scheduled time of a job, in RFC 3339 and UTC.
	ScheduledTimeHeader = "Scheduled-Time"
	// deduplicateFor is how long the broker must recognize a repeated job.
	deduplicateFor = 2 * time.Minute
	// resendWindow is how long after its first attempt a job may be sent again. It is shorter than deduplicateFor, because the
	// clocks of the operator and the broker differ, and requests take time.
	resendWindow = time.Minute
	// maxSetBack is how far the clock may have been set back since a job was first sent. Beyond it, the time of the first
	// attempt is unknown.
	maxSetBack = 10 * time.Second
)

// NewJob returns the job of a due time. queue is the name of the queue on the broker.
func NewJob(s *v1alpha1.Schedule, queue, id string, due time.Time) *broker.OutgoingJob {
	spec := s.Spec.Message
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

// resolveJob decides about a time whose job is being sent. It reports whether further times can be decided. A job is sent again
// only while the broker certainly recognizes it: afterwards, it remains unknown whether the job was sent.
func (e *evaluation) resolveJob(pending *v1alpha1.ScheduledRun) bool {
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
		return e.missPending(v1alpha1.MissedOutcomeUnknown, "the broker did not confirm the message in time")
	}
	e.decision.CreateRun = pending
	return false
}

func (e *evaluation) startSending() {
	e.status.Pending.Since = e.now.DeepCopy()
	e.decision.IsFirstAttempt = true
}
