package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

// getAdmin returns the body of a response of the admin API.
func getAdmin(t *testing.T, w *Worker, path string) string {
	t.Helper()
	return callAdmin(t, w, http.MethodGet, path, nil).Body.String()
}

func TestTheStatsHaveTheProgressOfRunningJobsAndMetricsHaveNoIDs(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.SendWithHeaders("data", nats.Header{broker.JobIDHeader: {"order-5"}, broker.KindHeader: {"bill"}})
	reported, end := make(chan struct{}), make(chan struct{})
	w := env.start(env.config(), func(ctx context.Context, job *Job) error {
		job.Progress(ctx, 0.1, "begin")
		job.Progress(ctx, 0.4, "2 of 5 <pages>")
		close(reported)
		<-end
		return nil
	})
	<-reported
	var stats Stats
	body := getAdmin(t, w.Worker, "/stats")
	require.NoError(t, json.Unmarshal([]byte(body), &stats))
	if len(stats.Progress) != 1 || stats.ProgressOmitted != 0 || !strings.Contains(body, "2 of 5 <pages>") {
		t.Fatalf("stats %s, want the progress of one job", body)
	}
	p := stats.Progress[0]
	if p.Queue != "orders" || p.ID != "order-5" || p.Kind != "bill" || p.Attempt != 1 || p.Fraction != 0.4 || p.Text != "2 of 5 <pages>" ||
		p.UpdateTime.Before(p.StartTime) || time.Since(p.StartTime) > testTimeout {
		t.Errorf("progress %+v", p)
	}
	if metrics := getAdmin(t, w.Worker, "/metrics"); !strings.Contains(metrics, "yardmaster_worker_in_flight 1") || strings.Contains(metrics, "order-5") {
		t.Errorf("the metrics contain the ID of a job:\n%s", metrics)
	}
	close(end)
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	progress := w.Stats().Progress
	require.True(t, len(progress) == 0, "the job has ended, and its progress is %+v", progress)
}

// newProgressJob returns a running job.
func newProgressJob(board *progressBoard, id string, startTime time.Time) *Job {
	job := &Job{ID: id, Queue: "orders", Attempt: 1}
	job.progress = &progressRecorder{board: board, job: job, startTime: startTime}
	return job
}

func TestProgressIsBounded(t *testing.T) {
	for title, row := range map[string]struct {
		fraction     float64
		text         string
		wantFraction float64
		wantText     string
	}{
		"valid":                    {0.4, "ü", 0.4, "ü"},
		"more than 1":              {7, "", 1, ""},
		"negative":                 {-1, "", 0, ""},
		"not a number":             {math.NaN(), "", 0, ""},
		"infinite":                 {math.Inf(1), "", 1, ""},
		"a long text":              {0, strings.Repeat("ü", 100), 0, strings.Repeat("ü", 64)},
		"a character is truncated": {0, "x" + strings.Repeat("ü", 100), 0, "x" + strings.Repeat("ü", 63)},
		"control characters":       {0, "a\nb\x00\x1b[31m", 0, "a b  [31m"},
		"invalid UTF-8":            {0, "a\xffb", 0, "ab"},
	} {
		t.Run(title, func(t *testing.T) {
			board := &progressBoard{now: time.Now}
			newProgressJob(board, "1", time.Now()).Progress(t.Context(), row.fraction, row.text)
			jobs, _ := board.longest()
			if len(jobs) != 1 || jobs[0].Fraction != row.wantFraction || jobs[0].Text != row.wantText {
				t.Errorf("progress %+v, want %v %q", jobs, row.wantFraction, row.wantText)
			}
		})
	}
}

func TestProgressHasNoEffectAfterTheEndOfAnAttemptOrWithoutAWorker(t *testing.T) {
	board := &progressBoard{now: time.Now}
	ended, cancelled := newProgressJob(board, "1", time.Now()), newProgressJob(board, "2", time.Now())
	ended.progress.end()
	ended.Progress(t.Context(), 0.5, "late")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cancelled.Progress(ctx, 0.5, "late")
	new(Job).Progress(t.Context(), 0.5, "in a test")
	jobs, omitted := board.longest()
	require.True(t, len(jobs)+omitted == 0, "progress %+v", jobs)
}

func TestTheStatsHaveTheJobsThatHaveRunForTheLongest(t *testing.T) {
	board, now := &progressBoard{now: time.Now}, time.Now()
	for i := range 25 {
		newProgressJob(board, fmt.Sprint(i), now.Add(-time.Duration(i)*time.Minute)).Progress(t.Context(), 0, "")
	}
	jobs, omitted := board.longest()
	if len(jobs) != maxReportedJobs || omitted != 15 || jobs[0].ID != "24" || jobs[9].ID != "15" {
		t.Errorf("%d jobs and %d more, from %s to %s, want 10 and 15 more, from 24 to 15", len(jobs), omitted, jobs[0].ID, jobs[len(jobs)-1].ID)
	}
}

// The operator does not read longer stats, and would consider the worker unresponsive.
func TestTheOperatorReadsTheLongestStats(t *testing.T) {
	t.Parallel()
	queueName := func(i int) string {
		return strings.Repeat("n", 63) + "_" + fmt.Sprintf("%063d", i) + "_0123456789"
	}
	config := Config{Broker: BrokerConfig{URL: "unused"}, AdminAddress: "0", Concurrency: maxConcurrency}
	for i := range maxQueueCount {
		config.Queues = append(config.Queues, QueueConfig{Name: queueName(i)})
	}
	name := strings.Repeat("p", 253)
	env := newUnreachableEnv(t)
	w := env.newWorker(Options{Config: config, Pool: name, Namespace: name, Pod: name, Revision: name}, blockingHandler(nil))
	for _, q := range w.settings.queues {
		w.queues[q.Name] = &attachedQueue{config: q, scheduled: scheduler.NewScheduledQueue(q, nil)}
	}
	w.configureScheduler()
	for range 20 {
		job := newProgressJob(&w.progress, strings.Repeat(`"`, 300), time.Now())
		job.Queue, job.Kind = queueName(1), strings.Repeat(`\`, 300)
		job.Progress(t.Context(), 1.0/3, strings.Repeat("\u2028", 300))
	}
	server := httptest.NewServer(w.AdminHandler())
	t.Cleanup(server.Close)
	fetch := func() error {
		_, err := workerclient.New().FetchStats(t.Context(), strings.TrimPrefix(server.URL, "http://"))
		return err
	}
	require.NoError(t, poll.UntilNil(t.Context(), fetch)) // a request has a second, which may be too short on a busy machine
	body := getAdmin(t, w, "/stats")
	require.True(t, len(body) >= 10_000 && utf8.ValidString(body), "the stats have %d bytes, so this test does not test the longest ones", len(body))
}
