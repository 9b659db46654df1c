package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestDrainFinishesRunningJobsAndReleasesTheRest(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.Send(numberedPayloads(100)...)
	release := make(chan struct{})
	var done jobLog
	handler := func(ctx context.Context, job *Job) error {
		<-release
		return done.handle(ctx, job)
	}
	w := env.start(env.config(), handler)
	poll.Until(t, "all executors to be busy", func() bool { return w.Stats().InFlight == 10 })
	w.shutDownNow()
	poll.Until(t, "no message to be prefetched", func() bool { s := w.Stats(); return s.State == StateDraining && s.Prefetched == 0 })
	if stats := env.Stats(); stats.InFlight > 10+20 { // released messages count until they are delivered again
		t.Errorf("queue stats %+v, want at most 30 in flight", stats)
	}
	close(release)
	require.NoError(t, <-w.result)
	require.Equal(t, 10, done.count())
	other := env.start(env.config(), handler)
	env.WaitUntilEmpty()
	requireCleanShutdown(t, other)
	wasDone := map[string]bool{}
	for _, job := range done.all() {
		if job.Attempt != 1 || job.MaxAttempts != 5 || job.Queue != "orders" || job.SentTime.IsZero() || wasDone[string(job.Payload)] {
			t.Fatalf("unexpected job %+v, done before: %t", job, wasDone[string(job.Payload)])
		}
		wasDone[string(job.Payload)] = true
	}
	require.Equal(t, 100, len(wasDone))
	require.Equal(t, 90, other.countedMessages(resultDone))
}

func TestAnAttemptThatTheDrainTimeoutInterruptsDoesNotCount(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errShutdown)
	w := &Worker{handlerContext: ctx}
	for _, err := range []error{ctx.Err(), context.Cause(ctx), fmt.Errorf("half done: %w", context.Cause(ctx))} {
		require.True(t, w.wasInterrupted(err), "%v was not interrupted", err)
	}
	require.True(t, !w.wasInterrupted(errors.New("no route")), "a failure was interrupted")
	running := &Worker{handlerContext: t.Context()}
	require.True(t, !running.wasInterrupted(context.Canceled), "an attempt was interrupted without a shutdown")
}

func TestAdminAPIDrainsAndResumes(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	var done jobLog
	w := env.startWithOptions(Options{Config: env.config(), Pool: "pool", Revision: "r1"}, done.handle)
	call := func(method, path string) (int, Stats) {
		t.Helper()
		response, s := callAdmin(t, w.Worker, method, path, nil), Stats{}
		if response.Header().Get("Content-Type") == "application/json" {
			require.NoError(t, json.NewDecoder(response.Body).Decode(&s))
		}
		return response.Code, s
	}
	ready := func(want int) func() bool {
		return func() bool { return callAdmin(t, w.Worker, http.MethodGet, "/readyz", nil).Code == want }
	}
	poll.Until(t, "the worker to be ready", ready(http.StatusOK))
	for path, want := range map[string]int{"/livez": http.StatusOK, "/drain": http.StatusMethodNotAllowed, "/metrics": http.StatusOK} {
		got := callAdmin(t, w.Worker, http.MethodGet, path, nil).Code
		require.True(t, got == want, "GET %s returned %d, want %d", path, got, want)
	}
	if status, s := call(http.MethodPost, "/drain"); status != http.StatusAccepted || s.State == StateRunning || s.Pool != "pool" || s.Revision != "r1" || s.Capacity != 10 {
		t.Errorf("POST /drain returned %d, %+v", status, s)
	}
	poll.Until(t, "the worker not to be ready", ready(http.StatusServiceUnavailable))
	poll.Until(t, "the worker to be drained", func() bool { _, s := call(http.MethodGet, "/stats"); return s.State == StateDrained })
	env.Send("x")
	require.True(t, done.count() == 0, "the drained worker started a job")
	if status, s := call(http.MethodPost, "/resume"); status != http.StatusOK || s.State != StateRunning {
		t.Errorf("POST /resume returned %d, %+v", status, s)
	}
	poll.Until(t, "the worker to take jobs again", func() bool { return done.count() == 1 })
	requireCleanShutdown(t, w)
	require.Equal(t, http.StatusConflict, callAdmin(t, w.Worker, http.MethodPost, "/resume", nil).Code)
}

// updateConfigMap changes the file of a ConfigMap volume, which is a symbolic link into a directory that is a symbolic link.
func updateConfigMap(t *testing.T, volume, version, text string) (file string) {
	t.Helper()
	next := filepath.Join(volume, "..next")
	require.NoError(t, errors.Join(
		os.MkdirAll(filepath.Join(volume, version), 0o700), os.WriteFile(filepath.Join(volume, version, "config.yaml"), []byte(text), 0o600),
		os.Symlink(version, next), os.Rename(next, filepath.Join(volume, "..data")),
	))
	file = filepath.Join(volume, "config.yaml")
	if _, err := os.Lstat(file); os.IsNotExist(err) {
		require.NoError(t, os.Symlink("..data/config.yaml", file))
	}
	return file
}

func TestConfigMapChangesApplyWithoutRestart(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	dir := t.TempDir()
	configWith := func(concurrency string) string {
		return "{broker: {url: " + env.Server.ClientURL() + "}, adminAddress: '0', queues: [{name: orders}], concurrency: " + concurrency + "}"
	}
	file := updateConfigMap(t, dir, "..1", configWith("2"))
	release := make(chan struct{})
	w := env.startWithOptions(Options{ConfigFile: file}, blockingHandler(release))
	env.Send(numberedPayloads(20)...)
	poll.Until(t, "two jobs to run", func() bool { return w.Stats().InFlight == 2 })
	updateConfigMap(t, dir, "..2", configWith("5"))
	poll.Until(t, "five jobs to run", func() bool { return w.Stats().InFlight == 5 })
	updateConfigMap(t, dir, "..3", configWith("-1"))
	updateConfigMap(t, dir, "..4", configWith("1"))
	poll.Until(t, "the capacity to be one", func() bool { return w.Stats().Capacity == 1 })
	close(release)
	poll.Until(t, "all jobs to be done", env.IsEmpty)
	updateConfigMap(t, dir, "..5", strings.Replace(configWith("1"), "orders", "other", 1))
	queuetest.Ensure(t, env.Engine, "other")
	env.SendTo("other", "x")
	poll.Until(t, "the job of the other queue to be done", func() bool {
		stats, err := env.Engine.Stats(t.Context(), "other")
		return err == nil && stats.Ready+stats.InFlight == 0
	})
	requireCleanShutdown(t, w)
}

func TestOnlyChangesOfTheConfigFileItselfReloadIt(t *testing.T) {
	directory := t.TempDir()
	path := updateConfigMap(t, directory, "..1", "")
	file := newWatchedFile(path)
	for _, e := range []struct {
		title  string
		change func()
		event  fsnotify.Event
		want   bool
	}{
		{"a log file next to it grows", func() {}, fsnotify.Event{Name: filepath.Join(directory, "worker.log"), Op: fsnotify.Write}, false},
		{"it is written", func() {}, fsnotify.Event{Name: path, Op: fsnotify.Write}, true},
		{"only its mode changes", func() {}, fsnotify.Event{Name: path, Op: fsnotify.Chmod}, false},
		{
			"the kubelet replaces a ConfigMap's directory", func() { updateConfigMap(t, directory, "..2", "") },
			fsnotify.Event{Name: filepath.Join(directory, "..data"), Op: fsnotify.Create},
			true,
		},
		{"the kubelet removes the old directory", func() {}, fsnotify.Event{Name: filepath.Join(directory, "..1"), Op: fsnotify.Remove}, false},
	} {
		e.change()
		got := file.isChangedBy(e.event)
		require.True(t, got == e.want, "%s: reloaded: %t, want %t", e.title, got, e.want)
	}
}

func TestConfigFileTakesPrecedenceOverOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	const text = "{broker: {url: nats://file}, concurrency: 3, maxInFlight: 4, queues: [{name: orders, weight: 2, strictPriority: true, " +
		"priorities: [{name: high, weight: 3}, {name: low}]}]}"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	o := Options{ConfigFile: file, Config: Config{
		Broker: BrokerConfig{URL: "nats://options"}, Queues: []QueueConfig{{Name: "mail"}}, Concurrency: 7, MaxInFlight: 8,
		DrainTimeout: Duration(time.Minute), AdminAddress: "0",
	}}
	got, err := o.loadSettings()
	require.NoError(t, err)
	queue := got.queues[0]
	priorities := []broker.Priority{{Name: "high", Weight: 3}, {Name: "low", Weight: 1}}
	if got.broker.URL != "nats://file" || got.concurrency != 3 || got.maxInFlight != 4 || len(got.queues) != 1 ||
		queue.Name != "orders" || queue.Weight != 2 || !queue.StrictPriority || !slices.Equal(queue.Priorities, priorities) {
		t.Errorf("settings %+v, want those of the file", got)
	}
	require.True(t, got.drainTimeout == time.Minute && got.adminAddress == "0", "settings %+v, want drainTimeout and adminAddress of the options", got)
}

func TestOptionsAreReadFromTheEnvironment(t *testing.T) {
	values := map[string]string{
		envPool: "pool", envQueues: "orders=3, mail", envConcurrency: "7", envDrainTimeout: "1m", envRevision: "r1",
	}
	o, err := parseEnvironment(func(name string) string { return values[name] })
	require.NoError(t, err)
	c := o.Config
	if o.Pool != "pool" || o.Revision != "r1" || c.Concurrency != 7 || c.DrainTimeout != Duration(time.Minute) ||
		len(c.Queues) != 2 || c.Queues[0].Name != "orders" || c.Queues[0].Weight != 3 || c.Queues[1].Name != "mail" {
		t.Errorf("options %+v", o)
	}
	values = map[string]string{envQueues: "orders=x", envConcurrency: "y", envDrainTimeout: "z"}
	_, err = parseEnvironment(func(name string) string { return values[name] })
	for _, want := range []string{envQueues, envConcurrency, envDrainTimeout} {
		require.True(t, err != nil && strings.Contains(err.Error(), want), "error %v, want one that names %s", err, want)
	}
}
