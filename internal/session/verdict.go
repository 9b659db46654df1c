package session

import (
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	maxRecordedRuns     = 10
	maxRunMessageLength = 256
)

// verdict is how an attempt ended.
type verdict struct {
	outcome         v1alpha1.RunOutcome
	reason, message string
	exitCode        *int32
	end             time.Time
}

// closeFailed closes an attempt that failed, and has the run tried again if that may be.
func (d *evaluation) closeFailed(c verdict) {
	c.outcome = v1alpha1.RunFailed
	d.close(c)
	if d.retries(c.reason) {
		d.lastRun().Outcome, d.status.CompletionTime = v1alpha1.RunRetried, nil
	}
}

// retries tells whether the run is tried again, and counts.
func (d *evaluation) retries(reason string) bool {
	retry := d.spec.Retry
	if left, limited := d.left(); retry == nil || limited && left == 0 {
		return false
	}
	switch reason {
	case v1alpha1.ReasonExitedWithError, v1alpha1.ReasonOOMKilled:
		if d.status.Retries >= retry.Limit {
			return false
		}
		d.status.Retries++
	case v1alpha1.ReasonEvicted, v1alpha1.ReasonPodLost:
		if !retry.OnDisruption || d.status.Disruptions >= maxDisruptions {
			return false
		}
		d.status.Disruptions++
	default:
		return false
	}
	return true
}

// fail ends the run without a Job, or before the one of the open attempt was made.
func (d *evaluation) fail(reason, message string) {
	d.close(verdict{outcome: v1alpha1.RunFailed, reason: reason, message: message, end: d.now.Time})
}

// close records how the open attempt ended. From here on its Job does not matter.
func (d *evaluation) close(c verdict) {
	s := &d.status
	end := metav1.NewTime(c.end.Truncate(time.Second)) // as it is stored
	record := v1alpha1.SessionRun{
		Run: s.Run, Attempt: s.Attempt, Job: s.Job, Start: s.JobStartTime, End: &end,
		ExitCode: c.exitCode, Outcome: c.outcome, Reason: c.reason, Message: truncateMessage(c.message),
	}
	if s.JobStartTime != nil {
		// Rounded up: of several attempts none may get time that another has used.
		s.ActiveSeconds += int64(max(c.end.Sub(s.JobStartTime.Time)+time.Second-1, 0) / time.Second)
	}
	if result := s.Result; result != nil && result.Run == s.Run && result.Attempt == s.Attempt && s.JobUID != "" {
		record.CostUSD = result.CostUSD
		s.TotalCostUSD = sumCosts(s.TotalCostUSD, result.CostUSD)
	}
	s.Runs = append(s.Runs, record)
	if len(s.Runs) > maxRecordedRuns {
		s.Runs = append([]v1alpha1.SessionRun(nil), s.Runs[len(s.Runs)-maxRecordedRuns:]...)
	}
	s.Job, s.JobUID = "", ""
	s.JobStartTime, s.RunnerStartTime, s.StopTime, s.WaitingSince = nil, nil, nil, nil
	if c.outcome != v1alpha1.RunStopped {
		s.StoppedReason = ""
	}
	if c.outcome == v1alpha1.RunCompleted || c.outcome == v1alpha1.RunFailed {
		s.CompletionTime = &end
	}
}

// truncateMessage cuts a message to what a record holds, marking the cut.
func truncateMessage(message string) string {
	const mark = "..."
	if utf8.RuneCountInString(message) <= maxRunMessageLength {
		return message
	}
	runes := []rune(message)
	return string(runes[:maxRunMessageLength-len(mark)]) + mark
}
