package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// preStopResponse is the response to a preStop hook.
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
	select {
	case r := <-first:
		t.Fatalf("preStop returned while a job runs: %+v", r)
	default:
	}
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
