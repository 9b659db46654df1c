package worker

import (
	"context"
	"encoding/json"
	"errors"
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
		defer func() { responses <- result }()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/prestop", http.NoBody)
		if err != nil {
			result.err = err
			return
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			result.err = err
			return
		}
		defer response.Body.Close()
		result.status, result.err = response.StatusCode, json.NewDecoder(response.Body).Decode(&result.stats)
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

func TestPreStopReturnsWhenTheWorkerIsDrainedAndTheWorkerExits(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.send("default", numberedPayloads(2)...)
	release := make(chan struct{})
	address := ports.Reserve(t).String()
	w := env.start(env.config(func(c *Config) { c.Concurrency, c.AdminAddress = 1, address }), blockingHandler(release))
	poll.Until(t, "a job to run", func() bool { return w.Stats().InFlight == 1 })
	first := callPreStop(t.Context(), "http://"+address)
	second := callPreStop(t.Context(), "http://"+address)
	poll.Until(t, "no message to be prefetched", func() bool { s := w.Stats(); return s.State == StateDraining && s.Prefetched == 0 })
	require.Equal(t, http.StatusConflict, adminRequest(t, http.MethodPost, "http://"+address+"/resume", nil))
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
	stats := env.stats()
	require.True(t, stats.Ready+stats.InFlight+stats.Delayed == 1, "queue stats %+v, want one job left", stats)
}

func TestPreStopReturnsAtTheDrainTimeout(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.send("default", "x")
	address := ports.Reserve(t).String()
	w := env.start(env.config(func(c *Config) {
		c.DrainTimeout, c.AdminAddress = Duration(200*time.Millisecond), address
	}), blockingHandler(nil))
	poll.Until(t, "a job to run", func() bool { return w.Stats().InFlight == 1 })
	startTime := time.Now()
	r := <-callPreStop(t.Context(), "http://"+address)
	require.True(t, r.err == nil && r.status == http.StatusServiceUnavailable, "preStop returned %+v", r)
	// A SIGTERM that follows does not extend the drain timeout.
	require.ErrorIs(t, w.shutDownAndWait(t), ErrDrainTimeout)
	// The worker has no jobs now, because it interrupted them.
	admin := httptest.NewServer(w.AdminHandler())
	defer admin.Close()
	if r := <-callPreStop(t.Context(), admin.URL); r.err != nil || r.status != http.StatusServiceUnavailable || r.stats.InFlight != 0 {
		t.Errorf("preStop after the interruption returned %+v", r)
	}
	elapsed := time.Since(startTime)
	require.True(t, elapsed >= 200*time.Millisecond && elapsed <= testTimeout, "shutdown took %s, want 200 ms", elapsed)
}

func TestPreStopMayTakeLongerThanTheReadTimeout(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.send("default", "x")
	release := make(chan struct{})
	w := env.start(env.config(), blockingHandler(release))
	server := httptest.NewUnstartedServer(nil)
	server.Config = w.newServer(w.AdminHandler())
	server.Config.ReadTimeout = 500 * time.Millisecond
	poll.Until(t, "a job to run", func() bool { return w.Stats().InFlight == 1 })
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
	env := newTestEnv(t)
	env.send("default", "x")
	release := make(chan struct{})
	w := env.start(env.config(), blockingHandler(release))
	server := httptest.NewServer(w.AdminHandler())
	defer server.Close()
	poll.Until(t, "a job to run", func() bool { return w.Stats().InFlight == 1 })
	ctx, disconnect := context.WithCancel(t.Context())
	first := callPreStop(ctx, server.URL)
	poll.Until(t, "the worker to drain", func() bool { return w.Stats().State == StateDraining })
	disconnect()
	r := <-first
	require.True(t, errors.Is(r.err, context.Canceled), "preStop returned %+v", r)
	close(release)
	require.NoError(t, <-w.result)
	require.True(t, env.isEmpty(), "the job was not done")
}

func TestPreStopReturnsBeforeTheWorkerHasConnected(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.server.Stop()
	w := env.start(env.config(), blockingHandler(nil))
	server := httptest.NewServer(w.AdminHandler())
	defer server.Close()
	r := <-callPreStop(t.Context(), server.URL)
	require.True(t, r.err == nil && r.status == http.StatusOK && !r.stats.Connected, "preStop returned %+v", r)
	require.NoError(t, <-w.result)
}
