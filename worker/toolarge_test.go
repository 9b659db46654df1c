package worker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// withResults keeps the states of jobs for an hour.
func withResults(q *broker.QueueConfig) {
	q.Results = broker.ResultsConfig{Retention: time.Hour, MaxBytes: broker.DefaultResultsBytes}
}

// The work of a job whose result the broker refuses is done. It would be repeated in vain, without end.
func TestAJobWhoseResultIsTooLargeForTheBrokerRunsOnce(t *testing.T) {
	t.Parallel()
	const limit = 32 << 10
	for title, row := range map[string]struct {
		server *natstest.Server
		// bucketLimit is the largest state that the bucket accepts; 0: no limit.
		bucketLimit int32
		want        string
	}{
		"limit of the server": {natstest.Start(t, func(o *server.Options) { o.MaxPayload, o.MaxPending = limit, 8*limit }), 0, "maximum payload exceeded"},
		"limit of the bucket": {natstest.Start(t), limit, "message size exceeds maximum allowed"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			env := &testEnv{queuetest.StartOn(t, row.server, "orders", withResults), t}
			if row.bucketLimit > 0 {
				states, err := env.JS.Stream(t.Context(), "KV_yardmaster_orders_jobs")
				require.NoError(t, err)
				config := states.CachedInfo().Config
				config.MaxMsgSize = row.bucketLimit
				_, err = env.JS.UpdateStream(t.Context(), config)
				require.NoError(t, err)
			}
			env.Send("large", "small")
			calls := atomic.Int64{}
			w := env.start(env.config(func(c *Config) { c.Queues[0].Results = &ResultsConfig{Retention: Duration(time.Hour)} }), func(_ context.Context, job *Job) error {
				calls.Add(1)
				if string(job.Payload) == "small" {
					return job.SetResult("x")
				}
				return job.SetResult(strings.Repeat("x", limit+1))
			})
			env.WaitUntilEmpty()
			requireCleanShutdown(t, w)
			letters := env.DeadLetters()
			if len(letters) != 1 || string(letters[0].Payload) != "large" || letters[0].Attempts != 1 ||
				!strings.HasPrefix(letters[0].Error, "the broker refuses the result: ") || !strings.Contains(letters[0].Error, row.want) {
				t.Errorf("dead letters %+v", letters)
			}
			if calls.Load() != 2 || w.countedMessages(resultUnsettled) > 0 || w.countedMessages(resultDone) != 1 {
				t.Errorf("%d calls, %v unsettled, %v done", calls.Load(), w.countedMessages(resultUnsettled), w.countedMessages(resultDone))
			}
		})
	}
}
