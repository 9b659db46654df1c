package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestDrainingLetsJobsFinishAndHandsTheRestBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", numbered(100)...)
	release := make(chan struct{})
	var done ledger
	handler := func(ctx context.Context, job *Job) error {
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		done.add(job)
		return nil
	}
	w := b.start(b.config(), handler)
	eventually(t, "it is busy", func() bool { return w.Stats().InFlight == 10 })
	w.stop()
	eventually(t, "it holds nothing", func() bool { s := w.Stats(); return s.State == Draining && s.Held == 0 })
	if f := b.figures(); f.InFlight > 10+20 { // what was handed back counts until it is taken again
		t.Errorf("figures %+v", f)
	}
	close(release)
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if got := done.count(); got != 10 {
		t.Errorf("%d are done", got)
	}
	other := b.start(b.config(), handler)
	eventually(t, "another does the rest", func() bool { return b.empty() })
	if err := other.end(t); err != nil {
		t.Error(err)
	}
	for _, job := range done.all() {
		if job.Attempt != 1 {
			t.Errorf("job %s is attempt %d", job.ID, job.Attempt)
		}
	}
	if got := done.count(); got != 100 {
		t.Errorf("%d are done", got)
	}
}

func TestAHandlerThatDoesNotFinishInTimeIsToldAndItsJobGoesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", "x")
	w := b.start(b.config(func(c *Config) { c.DrainTimeout = Duration(200 * time.Millisecond) }), func(ctx context.Context, _ *Job) error {
		<-ctx.Done()
		return ctx.Err()
	})
	eventually(t, "it is busy", func() bool { return w.Stats().InFlight == 1 })
	began := time.Now()
	if err := w.end(t); !errors.Is(err, ErrDrainTimeout) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 3*time.Second {
		t.Errorf("after %s", took)
	}
	if s := w.Stats(); s.Succeeded+s.Failed > 0 {
		t.Errorf("it succeeded %d times, and failed %d", s.Succeeded, s.Failed)
	}
	var attempt atomic.Int32
	other := b.start(b.config(), func(_ context.Context, job *Job) error {
		attempt.Store(int32(job.Attempt))
		return nil
	})
	eventually(t, "another does it", b.empty)
	if attempt.Load() != 1 {
		t.Errorf("as attempt %d", attempt.Load())
	}
	if err := other.end(t); err != nil {
		t.Error(err)
	}
}

func TestTheAdminAPIDrainsAndResumes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var done ledger
	w := b.startWith(Options{Config: b.config(), Pool: "pool", Revision: "r1"}, func(_ context.Context, job *Job) error {
		done.add(job)
		return nil
	})
	server := httptest.NewServer(w.Admin())
	defer server.Close()
	call := func(method, path string) (int, Stats) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var s Stats
		if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
			if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
				t.Fatal(err)
			}
		}
		return response.StatusCode, s
	}
	ready := func(want int) func() bool {
		return func() bool {
			status, _ := call(http.MethodGet, "/readyz")
			return status == want
		}
	}
	eventually(t, "it is ready", ready(http.StatusOK))
	if status, _ := call(http.MethodGet, "/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d", status)
	}
	if status, _ := call(http.MethodGet, "/drain"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET /drain: %d", status)
	}
	if status, s := call(http.MethodPost, "/drain"); status != http.StatusAccepted || s.State == Running || s.Pool != "pool" || s.Revision != "r1" || s.Capacity != 10 {
		t.Errorf("POST /drain: %d, %+v", status, s)
	}
	eventually(t, "it is not ready", ready(http.StatusServiceUnavailable))
	eventually(t, "it is drained", func() bool { _, s := call(http.MethodGet, "/stats"); return s.State == Drained })
	b.send("default", "x")
	if done.count() > 0 {
		t.Error("it takes jobs")
	}
	if status, s := call(http.MethodPost, "/resume"); status != http.StatusOK || s.State != Running {
		t.Errorf("POST /resume: %d, %+v", status, s)
	}
	eventually(t, "it takes jobs again", func() bool { return done.count() == 1 })
	if status, _ := call(http.MethodGet, "/metrics"); status != http.StatusOK {
		t.Errorf("/metrics: %d", status)
	}
	if err := w.end(t); err != nil {
		t.Error(err)
	}
	if status, _ := call(http.MethodPost, "/resume"); status != http.StatusConflict {
		t.Errorf("POST /resume when it has ended: %d", status)
	}
}

// A ConfigMap's volume: the file is a link into a directory that is a link.
func TestAChangedConfigMapHoldsWithoutARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	write := func(version, text string) {
		t.Helper()
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "config.yaml"), []byte(text), 0o600),
			os.Symlink(version, filepath.Join(dir, "..next")),
			os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	of := func(concurrency string) string {
		return "{broker: {url: " + b.server.ClientURL() + "}, adminAddress: '0', queues: [{name: orders}], concurrency: " + concurrency + "}"
	}
	write("..1", of("2"))
	file := filepath.Join(dir, "config.yaml")
	if err := os.Symlink("..data/config.yaml", file); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	w := b.startWith(Options{ConfigFile: file}, func(context.Context, *Job) error {
		<-release
		return nil
	})
	b.send("default", numbered(20)...)
	eventually(t, "two run", func() bool { return w.Stats().InFlight == 2 })
	write("..2", of("5"))
	eventually(t, "five run", func() bool { return w.Stats().InFlight == 5 })
	write("..3", of("-1"))
	write("..4", of("1"))
	eventually(t, "one may run", func() bool { return w.Stats().Capacity == 1 })
	close(release)
	eventually(t, "all are done", b.empty)
	write("..5", strings.Replace(of("1"), "orders", "other", 1))
	b.queue("other")
	b.sendTo("other", "default", "x")
	eventually(t, "the other queue is worked on", func() bool {
		f, err := b.engine.Stats(t.Context(), "other")
		return err == nil && f.Ready+f.InFlight == 0
	})
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

func TestTheEnvironment(t *testing.T) {
	values := map[string]string{
		envPool: "pool", envQueues: "orders=3, mail", envConcurrency: "7", envDrainTimeout: "1m", envRevision: "r1",
	}
	o, err := fromEnvironment(func(name string) string { return values[name] })
	if err != nil {
		t.Fatal(err)
	}
	c := o.Config
	if o.Pool != "pool" || o.Revision != "r1" || c.Concurrency != 7 || c.DrainTimeout != Duration(time.Minute) ||
		len(c.Queues) != 2 || c.Queues[0].Name != "orders" || c.Queues[0].Weight != 3 || c.Queues[1].Name != "mail" {
		t.Errorf("options %+v", o)
	}
	values = map[string]string{envQueues: "orders=x", envConcurrency: "y", envDrainTimeout: "z"}
	_, err = fromEnvironment(func(name string) string { return values[name] })
	for _, want := range []string{envQueues, envConcurrency, envDrainTimeout} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("told %v, want %s", err, want)
		}
	}
}
