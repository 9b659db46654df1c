package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestARequestToCancelAppliesUntilItsExpiry(t *testing.T) {
	sent := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		request jobstate.Cancel
		after   time.Duration
		want    bool
	}{
		"while the queue keeps it":             {jobstate.Cancel{}, 59 * time.Minute, true},
		"after the queue has deleted it":       {jobstate.Cancel{}, time.Hour, false},
		"for a job that was sent before":       {jobstate.Cancel{SentBefore: sent}, time.Minute, true},
		"for a job that was sent later":        {jobstate.Cancel{SentBefore: sent.Add(-1)}, time.Minute, false},
		"while the engine repeats it":          {jobstate.Cancel{ValidFor: 3 * time.Second}, time.Second, true},
		"after the engine has not repeated it": {jobstate.Cancel{ValidFor: 3 * time.Second}, 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			board := &reportBoard{}
			board.requestCancel("orders", "1", row.request, time.Hour, sent)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := &Worker{now: func() time.Time { return sent.Add(row.after) }}
			report := &attemptReport{w: w, job: &Job{Queue: "orders", ID: "1", SentTime: sent}, cancel: cancel}
			board.add(report)
			report.stop()
			require.Equal(t, row.want, errors.Is(context.Cause(ctx), ErrCanceled))
		})
	}
}
