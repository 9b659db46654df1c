package broker

import (
	"context"
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/require"
)

// storedJob has one state before its cancellation is requested, and another one after that.
type storedJob struct {
	JobStore
	state, next jobstate.State
	removed     bool
}

func (s *storedJob) Job(context.Context, string, string) (jobstate.Info, error) {
	return jobstate.Info{State: s.state}, nil
}

func (s *storedJob) CancelJob(context.Context, string, string) (bool, error) {
	s.state = s.next
	return s.removed, nil
}

func TestACancellationIsTooLateOnlyIfTheJobHadEndedBefore(t *testing.T) {
	for title, c := range map[string]struct {
		job  storedJob
		want CanceledJob
	}{
		"it waits":                   {storedJob{state: jobstate.Waiting, removed: true}, CanceledJob{Removed: true}},
		"it runs":                    {storedJob{state: jobstate.Running, next: jobstate.Running}, CanceledJob{State: jobstate.Running}},
		"its worker cancels at once": {storedJob{state: jobstate.Running, next: jobstate.Canceled}, CanceledJob{State: jobstate.Canceled}},
		"it was canceled before":     {storedJob{state: jobstate.Canceled, next: jobstate.Canceled}, CanceledJob{Ended: true, State: jobstate.Canceled}},
		"it ends meanwhile":          {storedJob{state: jobstate.Running, next: jobstate.Done}, CanceledJob{Ended: true, State: jobstate.Done}},
		"it was dead before":         {storedJob{state: jobstate.Dead, next: jobstate.Dead}, CanceledJob{Ended: true, State: jobstate.Dead}},
		"it is not known":            {storedJob{state: jobstate.Unknown, next: jobstate.Unknown}, CanceledJob{State: jobstate.Unknown}},
	} {
		got, err := CancelStoredJob(t.Context(), &c.job, "orders", "1")
		require.True(t, err == nil && got == c.want, "%s: %+v, %v, want %+v", title, got, err, c.want)
	}
}
