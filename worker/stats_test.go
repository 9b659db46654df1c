package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/workerclient"
)

func TestTheOperatorIsToldHowManyAttemptsSucceededAndFailed(t *testing.T) {
	t.Parallel()
	firstly := func(err error) func(*Job, int) error {
		return func(_ *Job, call int) error {
			if call == 1 {
				return err
			}
			return nil
		}
	}
	always := func(err error) func(*Job, int) error { return func(*Job, int) error { return err } }
	for name, row := range map[string]struct {
		handler           func(job *Job, call int) error
		succeeded, failed int64
	}{
		"a job that is done succeeded":               {always(nil), 1, 0},
		"one that is tried again failed, each time":  {firstly(errors.New("not yet")), 1, 1},
		"one that is too early failed":               {firstly(fmt.Errorf("closed: %w", Retry(time.Millisecond))), 1, 1},
		"one whose attempts are over failed":         {always(errors.New("never")), 0, 3},
		"one that becomes a dead letter failed":      {always(DeadLetter("not JSON")), 0, 1},
		"one that panicked failed":                   {func(*Job, int) error { panic("oh no") }, 0, 3},
		"one that could not be tried did not either": {firstly(PutBack(time.Millisecond)), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.send("default", "x")
			calls := 0
			w := b.start(b.config(fast), func(_ context.Context, job *Job) error {
				calls++
				return row.handler(job, calls)
			})
			server := httptest.NewServer(w.Admin())
			defer server.Close()
			told := &workerclient.Stats{}
			eventually(t, "it is settled", func() bool {
				var err error
				if told, err = workerclient.New().Stats(t.Context(), strings.TrimPrefix(server.URL, "http://")); err != nil {
					t.Fatal(err)
				}
				return *told.Succeeded+*told.Failed == row.succeeded+row.failed && b.empty()
			})
			want := &workerclient.Stats{State: string(Running), InFlight: told.InFlight, Succeeded: &row.succeeded, Failed: &row.failed}
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if err := w.end(t); err != nil {
				t.Error(err)
			}
		})
	}
}
