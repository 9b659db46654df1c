package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// operatorKey returns the keys of an operator, and a file with its public key.
func operatorKey(t *testing.T) (keys *adminauth.Keys, file string) {
	t.Helper()
	text := require.Call(adminauth.NewPrivateKey()).Succeeds(t)
	keys = require.Call(adminauth.ParsePrivateKey(text)).Succeeds(t)
	file = filepath.Join(t.TempDir(), "operator.pem")
	writePublicKey(t, file, keys)
	return keys, file
}

func writePublicKey(t *testing.T, file string, keys *adminauth.Keys) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(keys.PublicKey()), 0o600))
}

// newAdminWorker returns a worker that does not run, for requests to its admin API.
func newAdminWorker(t *testing.T, o Options) *Worker {
	t.Helper()
	env := newUnreachableEnv(t)
	o.Config = env.config()
	return env.newWorker(o, blockingHandler(nil))
}

func signedToken(t *testing.T, keys *adminauth.Keys, worker, action string, at time.Time) string {
	t.Helper()
	return require.Call(keys.Sign(adminauth.Request{Worker: worker, Action: action}, at)).Succeeds(t)
}

// callAdmin sends a request to the admin API from the worker's host.
func callAdmin(t *testing.T, w *Worker, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	return callAdminFrom(t, w, "127.0.0.1:1", method, path, header)
}

func callAdminFrom(t *testing.T, w *Worker, address, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	request.RemoteAddr, request.Header = address, header
	response := httptest.NewRecorder()
	w.AdminHandler().ServeHTTP(response, request)
	return response
}

// drainWith sends a request to drain a worker from another host, and returns the status of the response.
func drainWith(t *testing.T, w *Worker, authorization string) int {
	t.Helper()
	return callAdminFrom(t, w, "10.0.0.1:1", http.MethodPost, "/drain", http.Header{"Authorization": {authorization}}).Code
}

func TestRequestsThatChangeAWorkerNeedATokenOfTheOperator(t *testing.T) {
	t.Parallel()
	keys, keyFile := operatorKey(t)
	others, _ := operatorKey(t)
	w := newAdminWorker(t, Options{Namespace: "team", Pod: "mail-0", AdminKeyFile: keyFile})
	now := time.Now()
	resume := "Bearer " + signedToken(t, keys, "team/mail-0", "resume", now)
	for title, authorization := range map[string]string{
		"no token":                    "",
		"no Bearer token":             "Basic eDp4",
		"a token of another operator": "Bearer " + signedToken(t, others, "team/mail-0", "drain", now),
		"a token for another Pod":     "Bearer " + signedToken(t, keys, "team/mail-1", "drain", now),
		"a token for another action":  resume,
		"an expired token":            "Bearer " + signedToken(t, keys, "team/mail-0", "drain", now.Add(-time.Hour)),
	} {
		got := drainWith(t, w, authorization)
		require.True(t, got == http.StatusForbidden, "%s: POST /drain returned %d", title, got)
	}
	require.Equal(t, http.StatusForbidden, callAdmin(t, w, http.MethodPost, "/resume", nil).Code)
	require.Equal(t, http.StatusOK, callAdmin(t, w, http.MethodPost, "/resume", http.Header{"Authorization": {resume}}).Code)
	require.True(t, w.Stats().State == StateRunning, "a refused request drained the worker")
	got := drainWith(t, w, "Bearer "+signedToken(t, keys, "team/mail-0", "drain", now))
	require.True(t, got == http.StatusAccepted && w.Stats().State != StateRunning, "POST /drain with a valid token returned %d", got)
}

func TestANewKeyOfTheOperatorAppliesWithoutARestart(t *testing.T) {
	t.Parallel()
	_, keyFile := operatorKey(t)
	renewed, _ := operatorKey(t)
	w := newAdminWorker(t, Options{Namespace: "team", Pod: "mail-0", AdminKeyFile: keyFile})
	drain := func() int {
		return drainWith(t, w, "Bearer "+signedToken(t, renewed, "team/mail-0", adminauth.ActionDrain, time.Now()))
	}
	require.Equal(t, http.StatusForbidden, drain())
	writePublicKey(t, keyFile, renewed)
	require.Equal(t, http.StatusAccepted, drain())
	require.NoError(t, os.WriteFile(keyFile, nil, 0o600))
	require.Equal(t, http.StatusForbidden, drain())
}

func TestWorkersAreDrainedWithoutATokenIfTheirOperatorPublishesNoKey(t *testing.T) {
	t.Parallel()
	w := newAdminWorker(t, Options{AdminKeyFile: filepath.Join(t.TempDir(), "operator.pem")})
	require.Equal(t, http.StatusAccepted, drainWith(t, w, ""))
}

func TestAWorkerWithoutAnOperatorAcceptsRequestsFromItsOwnHostOnly(t *testing.T) {
	t.Parallel()
	w := newAdminWorker(t, Options{})
	for address, want := range map[string]int{
		"127.0.0.1:1": http.StatusAccepted, "[::1]:1": http.StatusAccepted,
		"10.0.0.1:1": http.StatusForbidden, "[fd00::1]:1": http.StatusForbidden, "": http.StatusForbidden,
	} {
		got := callAdminFrom(t, w, address, http.MethodPost, "/drain", nil).Code
		require.True(t, got == want, "POST /drain from %q returned %d, want %d", address, got, want)
	}
}

func TestThePreStopHookNeedsTheSecretOfTheRevision(t *testing.T) {
	t.Parallel()
	w := newAdminWorker(t, Options{PreStopSecret: "s3cret"})
	preStop := func(secret string) int {
		return callAdmin(t, w, http.MethodGet, "/prestop", http.Header{adminauth.PreStopHeader: {secret}}).Code
	}
	require.Equal(t, http.StatusNotFound, preStop(""))
	require.Equal(t, http.StatusNotFound, preStop("guess"))
	require.True(t, w.Stats().State == StateRunning && w.shutdown.Err() == nil, "a request without the secret ends the worker")
	require.Equal(t, http.StatusOK, preStop("s3cret"))
	require.True(t, w.shutdown.Err() != nil, "the worker does not end")
}

func TestMetricsWithTheirOwnAddressAreNotServedByTheAdminAPI(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	admin, metrics := ports.Reserve(t).String(), ports.Reserve(t).String()
	w := env.start(env.config(func(c *Config) { c.AdminAddress, c.MetricsAddress = admin, metrics }), blockingHandler(nil))
	poll.Until(t, "the worker to be attached", func() bool { return w.Stats().Attached })
	for url, want := range map[string]int{
		metrics + "/metrics": http.StatusOK, admin + "/metrics": http.StatusNotFound,
		admin + "/stats": http.StatusOK, metrics + "/stats": http.StatusNotFound,
	} {
		request := require.Call(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+url, http.NoBody)).Succeeds(t)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		_ = response.Body.Close()
		require.True(t, response.StatusCode == want, "GET %s returned %d, want %d", url, response.StatusCode, want)
	}
	requireCleanShutdown(t, w)
}

func TestAWorkerRunsWithoutMetricsIfAnotherProcessHasTheirPort(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	taken := require.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Succeeds(t)
	defer taken.Close()
	w := env.start(env.config(func(c *Config) { c.MetricsAddress = taken.Addr().String() }), blockingHandler(nil))
	poll.Until(t, "the worker to be attached", func() bool { return w.Stats().Attached })
	requireCleanShutdown(t, w)
}

func TestAFloodOfTheAdminAPIDoesNotFailTheLivenessProbe(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	address := ports.Reserve(t).String()
	w := env.start(env.config(func(c *Config) { c.AdminAddress = address }), blockingHandler(nil))
	poll.Until(t, "the worker to be attached", func() bool { return w.Stats().Attached })
	// Connections from another address than that of the probe, which send the begin of a request.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	var flood []net.Conn
	for range 3 * maxAdminConnections {
		c := require.Call(dialer.DialContext(t.Context(), "tcp", address)).Succeeds(t)
		_, _ = io.WriteString(c, "POST /drain HTTP/1.1\r\nHost: x\r\n")
		flood = append(flood, c)
	}
	probe := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		request := require.Call(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/livez", http.NoBody)).Succeeds(t)
		response, err := probe.Do(request)
		require.True(t, err == nil, "the liveness probe fails: %v", err)
		_ = response.Body.Close()
	}
	_, err := flood[0].Read(make([]byte, 1))
	require.True(t, err != nil && !strings.Contains(err.Error(), "timeout"), "the oldest connection of the flood is open: %v", err)
	for _, c := range flood { // so that the worker does not wait for their requests
		_ = c.Close()
	}
	requireCleanShutdown(t, w)
}

type preStopResponse struct {
	status int
	stats  Stats
	err    error
}

// callPreStop sends the request of a preStop hook in the background, as a kubelet does.
func callPreStop(ctx context.Context, url string) <-chan preStopResponse {
	responses := make(chan preStopResponse, 1)
	go func() {
		var result preStopResponse
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/prestop", http.NoBody)
		response, err := http.DefaultClient.Do(request)
		if result.err = err; err == nil {
			result.status, result.err = response.StatusCode, json.NewDecoder(response.Body).Decode(&result.stats)
			_ = response.Body.Close()
		}
		responses <- result
	}()
	return responses
}

// blockingHandler returns when release is closed or its context ends.
func blockingHandler(release <-chan struct{}) Handler {
	return func(ctx context.Context, _ *Job) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startBusyWorker runs a worker, of whose jobs one runs until release is closed.
func startBusyWorker(t *testing.T, jobs int, changes ...func(*Config)) (env *testEnv, w *runningWorker, release chan struct{}) {
	t.Helper()
	env, release = newTestEnv(t), make(chan struct{})
	env.Send(numberedPayloads(jobs)...)
	w = env.start(env.config(append(changes, func(c *Config) { c.Concurrency = 1 })...), blockingHandler(release))
	poll.Until(t, "a job to run", func() bool { return w.Stats().InFlight == 1 })
	return env, w, release
}

func TestPreStopReturnsWhenTheWorkerIsDrainedAndTheWorkerExits(t *testing.T) {
	t.Parallel()
	address := ports.Reserve(t).String()
	env, w, release := startBusyWorker(t, 2, func(c *Config) { c.AdminAddress = address })
	first := callPreStop(t.Context(), "http://"+address)
	second := callPreStop(t.Context(), "http://"+address)
	poll.Until(t, "no message to be prefetched", func() bool { s := w.Stats(); return s.State == StateDraining && s.Prefetched == 0 })
	require.Equal(t, http.StatusConflict, callAdmin(t, w.Worker, http.MethodPost, "/resume", nil).Code)
	require.True(t, len(first) == 0, "preStop returned while a job runs")
	close(release)
	for _, responses := range []<-chan preStopResponse{first, second} {
		r := <-responses
		require.True(t, r.err == nil && r.status == http.StatusOK && r.stats.State == StateDrained, "preStop returned %+v", r)
	}
	require.NoError(t, <-w.result)
	require.Equal(t, 1, env.Left())
}

func TestPreStopReturnsAtTheDrainTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	address := ports.Reserve(t).String()
	_, w, _ := startBusyWorker(t, 1, func(c *Config) { c.DrainTimeout, c.AdminAddress = Duration(timeout), address })
	startTime := time.Now()
	r := <-callPreStop(t.Context(), "http://"+address)
	require.True(t, r.err == nil && r.status == http.StatusServiceUnavailable, "preStop returned %+v", r)
	// A SIGTERM that follows does not extend the drain timeout.
	require.ErrorIs(t, w.shutDownAndWait(t), ErrDrainTimeout)
	// The worker has no jobs now, because it interrupted them.
	require.Equal(t, http.StatusServiceUnavailable, callAdmin(t, w.Worker, http.MethodGet, "/prestop", nil).Code)
	elapsed := time.Since(startTime)
	require.True(t, w.Stats().InFlight == 0 && elapsed >= timeout, "%d jobs, shutdown took %s", w.Stats().InFlight, elapsed)
}

func TestPreStopMayTakeLongerThanTheReadTimeout(t *testing.T) {
	t.Parallel()
	_, w, release := startBusyWorker(t, 1)
	server := httptest.NewUnstartedServer(nil)
	server.Config = w.newServer(w.AdminHandler())
	server.Config.ReadTimeout = 500 * time.Millisecond
	written := make(chan struct{}) // before the server starts, so that a client without a processor does not exceed its read timeout
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(written) }})
	response := callPreStop(ctx, "http://"+server.Listener.Addr().String())
	<-written
	server.Start()
	defer server.Close()
	poll.Until(t, "the worker to drain", func() bool { return w.Stats().State == StateDraining })
	time.Sleep(2 * server.Config.ReadTimeout)
	close(release)
	r := <-response
	require.True(t, r.err == nil && r.status == http.StatusOK, "preStop returned %+v", r)
	require.NoError(t, <-w.result)
}

func TestWorkerExitsEvenIfThePreStopClientDisconnects(t *testing.T) {
	t.Parallel()
	env, w, release := startBusyWorker(t, 1)
	server := httptest.NewServer(w.AdminHandler())
	defer server.Close()
	ctx, disconnect := context.WithCancel(t.Context())
	first := callPreStop(ctx, server.URL)
	poll.Until(t, "the worker to drain", func() bool { return w.Stats().State == StateDraining })
	disconnect()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	close(release)
	require.NoError(t, <-w.result)
	require.True(t, env.IsEmpty(), "the job was not done")
}

func TestPreStopReturnsBeforeTheWorkerHasConnected(t *testing.T) {
	t.Parallel()
	env := newUnreachableEnv(t)
	w := env.start(env.config(), blockingHandler(nil))
	require.Equal(t, http.StatusOK, callAdmin(t, w.Worker, http.MethodGet, "/prestop", nil).Code)
	require.True(t, !w.Stats().Connected, "the worker is connected to nothing")
	require.NoError(t, <-w.result)
}

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
	stats := env.Stats()
	require.True(t, stats.InFlight <= 10+20, "%+v", stats) // released messages count until they are delivered again
	close(release)
	require.NoError(t, <-w.result)
	require.Equal(t, 10, done.count())
	other := env.start(env.config(), handler)
	env.WaitUntilEmpty()
	requireCleanShutdown(t, other)
	wasDone := map[string]bool{}
	for _, job := range done.all() {
		isRight := job.Attempt == 1 && job.MaxAttempts == 5 && job.Queue == "orders" && !job.SentTime.IsZero()
		require.True(t, isRight && !wasDone[string(job.Payload)], "unexpected job %+v, done before: %t", job, wasDone[string(job.Payload)])
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
	status, s := call(http.MethodPost, "/drain")
	isDescribed := s.Pool == "pool" && s.Revision == "r1" && s.Capacity == 10
	require.True(t, status == http.StatusAccepted && s.State != StateRunning && isDescribed, "POST /drain returned %d, %+v", status, s)
	poll.Until(t, "the worker not to be ready", ready(http.StatusServiceUnavailable))
	poll.Until(t, "the worker to be drained", func() bool { _, s := call(http.MethodGet, "/stats"); return s.State == StateDrained })
	env.Send("x")
	require.True(t, done.count() == 0, "the drained worker started a job")
	status, s = call(http.MethodPost, "/resume")
	require.True(t, status == http.StatusOK && s.State == StateRunning, "POST /resume returned %d, %+v", status, s)
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
	got := require.Call(o.loadSettings()).Succeeds(t)
	queue := got.queues[0]
	priorities := []broker.Priority{{Name: "high", Weight: 3}, {Name: "low", Weight: 1}}
	require.Equal(t, [3]int{3, 4, 1}, [3]int{got.concurrency, got.maxInFlight, len(got.queues)})
	isOfFile := got.broker.URL == "nats://file" && queue.Name == "orders" && queue.Weight == 2 && queue.StrictPriority
	require.True(t, isOfFile && slices.Equal(queue.Priorities, priorities), "settings %+v, want those of the file", got)
	require.True(t, got.drainTimeout == time.Minute && got.adminAddress == "0", "settings %+v, want drainTimeout and adminAddress of the options", got)
}

func TestOptionsAreReadFromTheEnvironment(t *testing.T) {
	values := map[string]string{envPool: "pool", envQueues: "orders=3, mail", envConcurrency: "7", envDrainTimeout: "1m", envRevision: "r1"}
	o := require.Call(parseEnvironment(func(name string) string { return values[name] })).Succeeds(t)
	c := o.Config
	areQueues := len(c.Queues) == 2 && c.Queues[0].Name == "orders" && c.Queues[0].Weight == 3 && c.Queues[1].Name == "mail"
	require.True(t, areQueues && o.Pool == "pool" && o.Revision == "r1" && c.Concurrency == 7 && c.DrainTimeout == Duration(time.Minute), "%+v", o)
	values = map[string]string{envQueues: "orders=x", envConcurrency: "y", envDrainTimeout: "z"}
	_, err := parseEnvironment(func(name string) string { return values[name] })
	for _, want := range []string{envQueues, envConcurrency, envDrainTimeout} {
		require.True(t, err != nil && strings.Contains(err.Error(), want), "error %v, want one that names %s", err, want)
	}
}
