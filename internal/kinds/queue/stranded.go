package queue

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// StrandedMessages are the messages that no worker receives and that are not dead, after the last sweep.
type StrandedMessages struct {
	// Number of messages; nil if unknown.
	Number *int64
	// Since is when a sweep first left some; zero if the last one left nothing. It stays while the number is unknown.
	Since time.Time
}

func (s StrandedMessages) add(number *int64, now time.Time) StrandedMessages {
	s.Number = number
	switch {
	case number != nil && *number == 0:
		s.Since = time.Time{}
	case number != nil && s.Since.IsZero():
		s.Since = now
	}
	return s
}

// stay reports whether messages are stranded for longer than a sweep takes to rescue them.
func (s StrandedMessages) stay(now time.Time, sweepInterval time.Duration) bool {
	return !s.Since.IsZero() && now.Sub(s.Since) > 2*sweepInterval
}

// applyRescue makes a sweep that left something continue soon.
func (o *Observation) applyRescue(result *broker.RescueResult) {
	o.Rescued, o.Stats = true, nil
	o.History.Stranded = o.History.Stranded.add(result.Stranded, o.Now)
	if result.Rescued >= broker.MaxRescued || !o.History.Stranded.Since.IsZero() {
		o.History.Comparison.Expires = o.Now.Add(unfinishedInterval)
	}
}

func checkStranded(in *conditionInput) (decision.Summary, bool) {
	s := in.History.Stranded
	number := "Some messages"
	if s.Number != nil {
		number = countNoun(*s.Number, "message")
	}
	return decision.Summary{
		Ready: metav1.ConditionFalse, Progress: decision.InProgress, Reason: v1alpha1.ReasonMessagesStranded, Message: fmt.Sprintf(
			"Stranded since %s: %s that the broker does not deliver, and that may be among those that workers hold. "+
				"They become dead letters when inFlight is 0",
			s.Since.UTC().Format(time.RFC3339), number),
	}, s.stay(in.Now, in.SweepInterval)
}
