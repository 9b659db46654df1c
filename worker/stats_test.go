package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
	"github.com/yardmaster/yardmaster/test/poll"
)

func TestStatsCountSucceededAndFailedAttempts(t *testing.T) {
	t.Parallel()
	failFirst := func(err error) func(*Job, int) error {
		return func(_ *Job, call int) error {
			if call == 1 {
				return err
			}
			return nil
		}
	}
	returnAlways := func(err error) func(*Job, int) error { return func(*Job, int) error { return err } }
	for name, row := range map[string]struct {
		handler                    func(job *Job, call int) error
		succeeded, failed, snoozed int64
		attempts, returned         float64
	}{
		"a done job succeeded":                        {returnAlways(nil), 1, 0, 0, 1, 0},
		"each failed attempt of a retried job failed": {failFirst(errors.New("not yet")), 1, 1, 0, 2, 1},
		"Retry failed":                                {failFirst(fmt.Errorf("closed: %w", Retry(time.Millisecond))), 1, 1, 0, 2, 1},
		"all attempts of a dead letter failed":        {returnAlways(errors.New("never")), 0, 3, 0, 3, 2},
		"DeadLetter failed":                           {returnAlways(DeadLetter("not JSON")), 0, 1, 0, 1, 0},
		"a panic failed":                              {func(*Job, int) error { panic("oh no") }, 0, 3, 0, 3, 2},
		"Snooze is neither a success nor a failure":   {failFirst(Snooze(time.Millisecond)), 1, 0, 1, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t)
			env.send("default", "x")
			startTime, calls := time.Now(), 0
			w := env.start(env.config(withFastRetries), func(_ context.Context, job *Job) error {
				calls++
				return row.handler(job, calls)
			})
			server := httptest.NewServer(w.AdminHandler())
			defer server.Close()
			got := &workerclient.Stats{}
			poll.Until(t, "the job to be settled", func() bool {
				var err error
				if got, err = workerclient.New().FetchStats(t.Context(), strings.TrimPrefix(server.URL, "http://")); err != nil {
					t.Log(err) // a request has a second, which may be too short on a busy machine
					return false
				}
				return *got.Succeeded+*got.Failed == row.succeeded+row.failed && env.isEmpty()
			})
			recent := got.Recent
			got.Recent = nil
			remaining := math.Exp(-time.Since(startTime).Seconds() / recentTime.Seconds()) // the count of an attempt decays
			isCount := func(got, want float64) bool { return got >= want*remaining && got <= want }
			if recent == nil || !isCount(recent.Count, row.attempts) || !isCount(recent.Returned, row.returned) || recent.Seconds <= 0 {
				t.Errorf("recent attempts %+v, want %g, of which %g returned", recent, row.attempts, row.returned)
			}
			want := &workerclient.Stats{
				State: string(StateRunning), Attached: new(true), Queues: make([]struct{}, 1), InFlight: got.InFlight,
				Succeeded: &row.succeeded, Failed: &row.failed, Snoozed: &row.snoozed, Returned: got.Returned, Breaker: got.Breaker,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stats (-want +got):\n%s", diff)
			}
			requireCleanShutdown(t, w)
		})
	}
}

func TestRecentAttemptsDecay(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var recorder attemptRecorder
	recorder.record(start, time.Second, true)
	recorder.record(start, 3*time.Second, false)
	if got := recorder.recent(start); got != (RecentAttempts{Count: 2, Seconds: 4, Returned: 1}) {
		t.Errorf("at once: %+v", got)
	}
	got := recorder.recent(start.Add(recentTime))
	if math.Abs(got.Count-2/math.E) > 1e-9 || math.Abs(got.Seconds-4/math.E) > 1e-9 || math.Abs(got.Returned-1/math.E) > 1e-9 {
		t.Errorf("after two minutes: %+v", got)
	}
	recorder.record(start.Add(-time.Hour), -time.Second, false) // the clock was set back
	if got := recorder.recent(start.Add(-time.Hour)); got != (RecentAttempts{Count: 3, Seconds: 4, Returned: 1}) {
		t.Errorf("after the clock was set back: %+v", got)
	}
}
