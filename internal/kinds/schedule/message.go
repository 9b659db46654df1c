package schedule

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// ScheduledTimeHeader is the header with the scheduled time of a message, in RFC 3339 and UTC.
	ScheduledTimeHeader = "Scheduled-Time"
	// deduplicateFor is how long the broker must recognize a repeated message.
	deduplicateFor = 2 * time.Minute
	// resendWindow is how long after its first attempt a message may be sent again. It is shorter than deduplicateFor, because the
	// clocks of the operator and the broker differ, and requests take time.
	resendWindow = time.Minute
	// maxSetBack is how far the clock may have been set back since a message was first sent. Beyond it, the time of the first
	// attempt is unknown.
	maxSetBack = 10 * time.Second
)

// NewMessage returns the message of a due time. queue is the name of the queue on the broker.
func NewMessage(s *v1alpha1.Schedule, queue, id string, due time.Time) *broker.OutgoingJob {
	spec := s.Spec.Message
	message := &broker.OutgoingJob{
		Queue: queue, ID: id, HasChosenID: true, DeduplicateFor: deduplicateFor, Kind: spec.Kind, Priority: spec.Priority,
		Headers: map[string][]string{ScheduledTimeHeader: {formatTime(due)}},
	}
	for name, value := range spec.Headers {
		message.Headers[name] = []string{value}
	}
	if spec.Payload != nil {
		message.Payload = spec.Payload.Raw
		message.Headers["Content-Type"] = []string{"application/json"}
	}
	if spec.Timeout != nil {
		message.Timeout = spec.Timeout.Duration.Duration
	}
	return message
}

// resolveMessage decides about a time whose message is being sent. It reports whether further times can be decided. A message is
// sent again only while the broker certainly recognizes it: afterwards, it remains unknown whether the message was sent.
func (t *times) resolveMessage(pending *v1alpha1.ScheduledRun) bool {
	isCertainlyNotSent := t.NotSent != nil || pending.Since == nil
	obstacle, detail := t.obstacleOf(pending), ""
	switch {
	case t.Sent:
		t.countStarted(t.Now)
		return true
	case t.Refusal != nil:
		t.missPending(v1alpha1.MissedRefused, t.Refusal.Message)
		return true
	case isCertainlyNotSent && obstacle != "":
		if t.NotSent != nil && obstacle == v1alpha1.MissedTooLate {
			detail = t.NotSent.Message
		}
		t.missPending(obstacle, detail)
		return true
	case t.NotSent != nil:
		pending.Since = nil
		t.problem = t.NotSent
		t.retryLater(pending)
		return false
	case isCertainlyNotSent:
		t.startSending()
	default:
		if elapsed := t.Now.Sub(pending.Since.Time); elapsed <= -maxSetBack || elapsed >= resendWindow {
			t.missPending(v1alpha1.MissedOutcomeUnknown, "the broker did not confirm the message in time")
			return true
		}
	}
	t.create = pending
	return false
}

func (t *times) startSending() {
	t.status.Pending.Since = t.now.DeepCopy()
	t.isFirstAttempt = true
}
