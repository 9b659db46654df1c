package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// hook is a preStop hook under way.
type hook struct {
	status int
	stats  Stats
	err    error
}

// preStop does what a kubelet does, which waits for the answer.
func preStop(ctx context.Context, url string) <-chan hook {
	answered := make(chan hook, 1)
	go func() {
		var h hook
		defer func() { answered <- h }()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/prestop", http.NoBody)
		if err != nil {
			h.err = err
			return
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			h.err = err
			return
		}
		defer response.Body.Close()
		h.status, h.err = response.StatusCode, json.NewDecoder(response.Body).Decode(&h.stats)
	}()
	return answered
}

// freeAddress is one where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// blocked is a handler that finishes when it is let, or when it has to.
func blocked(release <-chan struct{}) Handler {
	return func(ctx context.Context, _ *Job) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestAPreStopHookIsAnsweredWhenTheWorkerIsDrainedAndThenItEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", numbered(2)...)
	release := make(chan struct{})
	address := freeAddress(t)
	w := b.start(b.config(func(c *Config) { c.Concurrency, c.AdminAddress = 1, address }), blocked(release))
	eventually(t, "it is busy", func() bool { return w.Stats().InFlight == 1 })
	answered := preStop(t.Context(), "http://"+address)
	again := preStop(t.Context(), "http://"+address)
	eventually(t, "it takes nothing more", func() bool { s := w.Stats(); return s.State == Draining && s.Held == 0 })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/resume", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusConflict {
		t.Errorf("POST /resume: %d", response.StatusCode)
	}
	select {
	case h := <-answered:
		t.Fatalf("it is answered while a job runs: %+v", h)
	default:
	}
	close(release)
	for _, hook := range []<-chan hook{answered, again} {
		if h := <-hook; h.err != nil || h.status != http.StatusOK || h.stats.State != Drained {
			t.Errorf("the answer is %+v", h)
		}
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if f := b.figures(); f.Ready+f.InFlight+f.Delayed != 1 {
		t.Errorf("the other job: %+v", f)
	}
}

func TestAPreStopHookIsAnsweredWhenTheDrainTimeoutIsOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", "x")
	address := freeAddress(t)
	w := b.start(b.config(func(c *Config) {
		c.DrainTimeout, c.AdminAddress = Duration(200*time.Millisecond), address
	}), blocked(nil))
	eventually(t, "it is busy", func() bool { return w.Stats().InFlight == 1 })
	began := time.Now()
	if h := <-preStop(t.Context(), "http://"+address); h.err != nil || h.status != http.StatusServiceUnavailable {
		t.Errorf("the answer is %+v", h)
	}
	// A SIGTERM that follows finds it on its way, and gives it no more time.
	if err := w.end(t); !errors.Is(err, ErrDrainTimeout) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 3*time.Second {
		t.Errorf("after %s", took)
	}
}

func TestAPreStopHookMayTakeLongerThanRequestsMayTakeToCome(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", "x")
	w := b.start(b.config(), func(context.Context, *Job) error {
		time.Sleep(time.Second)
		return nil
	})
	server := httptest.NewUnstartedServer(nil)
	server.Config = w.server()
	server.Config.ReadTimeout = 50 * time.Millisecond
	server.Start()
	defer server.Close()
	eventually(t, "it is busy", func() bool { return w.Stats().InFlight == 1 })
	if h := <-preStop(t.Context(), server.URL); h.err != nil || h.status != http.StatusOK {
		t.Errorf("the answer is %+v", h)
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
}

func TestAPreStopHookThatIsBrokenOffHasTheWorkerEndAllTheSame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", "x")
	release := make(chan struct{})
	w := b.start(b.config(), blocked(release))
	server := httptest.NewServer(w.Admin())
	defer server.Close()
	eventually(t, "it is busy", func() bool { return w.Stats().InFlight == 1 })
	ctx, hangUp := context.WithCancel(t.Context())
	answered := preStop(ctx, server.URL)
	eventually(t, "it drains", func() bool { return w.Stats().State == Draining })
	hangUp()
	if h := <-answered; !errors.Is(h.err, context.Canceled) {
		t.Errorf("the answer is %+v", h)
	}
	close(release)
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if !b.empty() {
		t.Error("the job is not done")
	}
}

func TestAPreStopHookIsAnsweredBeforeTheBrokerIsReached(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.Stop()
	w := b.start(b.config(), blocked(nil))
	server := httptest.NewServer(w.Admin())
	defer server.Close()
	if h := <-preStop(t.Context(), server.URL); h.err != nil || h.status != http.StatusOK || h.stats.Connected {
		t.Errorf("the answer is %+v", h)
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
}
