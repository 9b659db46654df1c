package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

func TestEachJobIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", numbered(2000)...)
	var done ledger
	w := b.start(b.config(), func(_ context.Context, job *Job) error {
		done.add(job)
		return nil
	})
	eventually(t, "all are done", func() bool { return done.count() == 2000 && b.empty() })
	if err := w.end(t); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, job := range done.all() {
		if seen[string(job.Payload)] || job.Attempt != 1 || job.MaxAttempts != 5 || job.Queue != "orders" || job.Sent.IsZero() {
			t.Fatalf("%+v, seen before: %t", job, seen[string(job.Payload)])
		}
		seen[string(job.Payload)] = true
	}
	if got := w.counted(t, resultDone); got != 2000 {
		t.Errorf("%d counted", got)
	}
}

func fast(c *Config) {
	c.Queues[0].Retry = &RetryPolicy{MaxAttempts: new(3), InitialDelay: new(Duration(time.Millisecond)), MaxDelay: new(Duration(10 * time.Millisecond))}
}

func TestWhatTheHandlerReturnsDecides(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change   func(*Config)
		handler  func(*Job) error
		attempts int
		dead     string
	}{
		"no error: the job is done": {fast, func(*Job) error { return nil }, 1, ""},
		"an error, then none: it is tried again": {fast, func(job *Job) error {
			if job.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		}, 2, ""},
		"errors until its attempts are over: it is a dead letter": {
			fast, func(*Job) error { return errors.New("never") }, 3, "never",
		},
		"Retry: it is tried again after that time": {
			func(c *Config) {
				fast(c)
				c.Queues[0].Retry.InitialDelay, c.Queues[0].Retry.MaxDelay = new(Duration(time.Hour)), new(Duration(time.Hour))
			},
			func(job *Job) error {
				if job.Attempt == 1 {
					return fmt.Errorf("closed: %w", Retry(time.Millisecond))
				}
				return nil
			}, 2, "",
		},
		"DeadLetter: it is not tried again": {
			fast, func(*Job) error { return fmt.Errorf("reading it: %w", DeadLetter("not JSON")) }, 1, "reading it: not JSON",
		},
		"PutBack: that was no attempt": {
			func(c *Config) { fast(c); c.Queues[0].Retry.MaxAttempts = new(1) },
			func() func(*Job) error {
				times := 0
				return func(job *Job) error {
					times++
					if times < 3 {
						return fmt.Errorf("nobody there: %w", PutBack(time.Millisecond))
					}
					if job.Attempt != 1 {
						return fmt.Errorf("attempt %d", job.Attempt)
					}
					return nil
				}
			}(), 3, "",
		},
		"a panic is an error": {fast, func(*Job) error { panic("oh no") }, 3, "panic: oh no"},
		"without dead letters it is dropped": {
			func(c *Config) { fast(c); c.Queues[0].DeadLetter = &DeadLetters{Enabled: new(false)} },
			func(*Job) error { return errors.New("never") }, 3, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.send("default", "x")
			var tried ledger
			w := b.start(b.config(row.change), func(_ context.Context, job *Job) error {
				tried.add(job)
				return row.handler(job)
			})
			eventually(t, "it is settled", func() bool { return tried.count() >= row.attempts && b.empty() })
			if err := w.end(t); err != nil {
				t.Error(err)
			}
			if got := tried.count(); got != row.attempts {
				t.Errorf("tried %d times, want %d", got, row.attempts)
			}
			letters, err := b.engine.DeadLetters("orders").List(t.Context(), 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case row.dead == "" && len(letters) > 0:
				t.Errorf("a dead letter: %+v", letters)
			case row.dead != "" && (len(letters) != 1 || letters[0].Error != row.dead || letters[0].Attempts != row.attempts || string(letters[0].Payload) != "x"):
				t.Errorf("dead letters %+v, want %s", letters, row.dead)
			}
		})
	}
}

func TestAJobWhoseWorkersWereLostIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", "x")
	source, err := b.engine.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	lane, err := source.Consumer(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer lane.Stop()
	for range 3 { // begun, and never heard of again
		n, err := lane.Next(t.Context(), 5*time.Second, func(d broker.Delivery) {
			if err := d.Retry(t.Context(), 0); err != nil {
				t.Error(err)
			}
		})
		if n != 1 || err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	w := b.start(b.config(fast), func(context.Context, *Job) error {
		t.Error("it is tried a fourth time")
		return nil
	})
	eventually(t, "it is a dead letter", func() bool { return b.figures().DeadLetters == 1 && b.empty() })
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

func TestALeaseIsRenewedWhileAHandlerRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	b.send("default", "x")
	var begun atomic.Int32
	handler := func(context.Context, *Job) error {
		begun.Add(1)
		time.Sleep(7 * time.Second) // longer than the lease
		return nil
	}
	lease := func(c *Config) { c.Queues[0].Lease = Duration(broker.MinLease) }
	one, other := b.start(b.config(lease), handler), b.start(b.config(lease), handler)
	eventually(t, "it is done", func() bool { return begun.Load() > 0 && b.empty() })
	for _, w := range []*started{one, other} {
		if err := w.end(t); err != nil {
			t.Error(err)
		}
	}
	if got := begun.Load(); got != 1 {
		t.Errorf("begun %d times", got)
	}
}

// The worker believes in a lease that is shorter than it is; so its lease is lost, as
// after a partition, while the broker has not yet given the job to another.
func TestAJobThatEndsAfterItsLeaseIsRecognised(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		gone bool
		err  error
		want string
	}{
		"somebody else was done with it": {true, nil, resultStale},
		"nobody else was":                {false, nil, resultLate},
		"it failed, and another has it":  {false, errors.New("x"), resultStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.send("default", "x")
			var w *started
			ready := make(chan struct{})
			w = b.start(b.config(), func(context.Context, *Job) error {
				<-ready
				w.yard.mu.Lock()
				for h := range w.yard.leased {
					h.leased.Store(new(time.Now().Add(-time.Hour)))
					h.renewing = true // nobody hears of its renewals
				}
				w.yard.mu.Unlock()
				if row.gone {
					b.purge()
				}
				return row.err
			})
			close(ready)
			eventually(t, "it is counted", func() bool { return w.counted(t, row.want) == 1 })
			if done := w.counted(t, resultDone) == 1; done != (row.want == resultLate) {
				t.Errorf("done: %t", done)
			}
			if err := w.end(t); err != nil {
				t.Error(err)
			}
		})
	}
}

func (b *bench) purge() {
	stream, err := b.js.Stream(b.t.Context(), "yardmaster_orders")
	if err == nil {
		err = stream.Purge(b.t.Context())
	}
	if err != nil {
		b.t.Error(err)
	}
}

// It does not run beside the other tests: it measures.
func TestPriorities(t *testing.T) {
	levels := func(q *broker.QueueConfig) {
		q.Priorities = []broker.Priority{{Name: "high", Weight: 3}, {Name: "low", Weight: 1}}
	}
	for name, row := range map[string]struct {
		strict      bool
		least, most int // of high among the first 400
	}{
		"by weight": {false, 280, 320},
		"strictly":  {true, 400, 400},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, levels)
			b.send("low", numbered(1000)...)
			b.send("high", numbered(1000)...)
			var begun ledger
			w := b.start(b.config(func(c *Config) {
				c.Concurrency = 4
				c.Queues[0].Priorities = []Priority{{"high", 3}, {"low", 1}}
				c.Queues[0].StrictPriority = row.strict
			}), func(_ context.Context, job *Job) error {
				begun.add(job)
				time.Sleep(time.Millisecond)
				return nil
			})
			eventually(t, "all are done", func() bool { return begun.count() == 2000 && b.empty() })
			if err := w.end(t); err != nil {
				t.Error(err)
			}
			high := 0
			for _, job := range begun.all()[50:450] { // at first it is not known what there is
				if job.Priority == "high" {
					high++
				}
			}
			if high < row.least || high > row.most {
				t.Errorf("%d of 400 are high, want %d to %d", high, row.least, row.most)
			}
		})
	}
}

func TestLongJobsAreNotHeldFromOtherWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", numbered(4)...)
	release := make(chan struct{})
	handler := func(context.Context, *Job) error {
		<-release
		return nil
	}
	few := func(c *Config) { c.Concurrency = 2 }
	one := b.start(b.config(few), handler)
	eventually(t, "one is busy", func() bool { return one.Stats().InFlight == 2 })
	other := b.start(b.config(few), handler)
	eventually(t, "the other has the rest", func() bool { return other.Stats().InFlight == 2 })
	close(release)
	for _, w := range []*started{one, other} {
		if err := w.end(t); err != nil {
			t.Error(err)
		}
	}
}

func TestAQueueThatIsNotThereYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var done ledger
	w := b.start(b.config(func(c *Config) { c.Queues = append(c.Queues, Queue{Name: "later"}) }), func(_ context.Context, job *Job) error {
		done.add(job)
		return nil
	})
	b.send("default", "x")
	eventually(t, "the other queue is worked on", func() bool { return done.count() == 1 })
	b.queue("later")
	b.sendTo("later", "default", "y")
	eventually(t, "it is worked on", func() bool { return done.count() == 2 })
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

func TestJobsGoOnAfterTheBrokerIsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var done ledger
	w := b.start(b.config(), func(_ context.Context, job *Job) error {
		done.add(job)
		return nil
	})
	b.send("default", "before")
	eventually(t, "one is done", func() bool { return done.count() == 1 && b.empty() })
	b.server.Restart()
	eventually(t, "it can be sent to", func() bool {
		_, err := b.js.Publish(t.Context(), "yardmaster.orders.ready.default", []byte("after"))
		return err == nil
	})
	eventually(t, "one more is done", func() bool { return done.count() == 2 && b.empty() })
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

func TestABreakerStopsWhatKeepsFailing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send("default", numbered(200)...)
	var tried atomic.Int32
	var well atomic.Bool
	w := b.start(b.config(func(c *Config) {
		c.Queues[0].CircuitBreaker = &CircuitBreaker{MinSamples: new(20), Cooldown: new(Duration(500 * time.Millisecond))}
		c.Queues[0].Retry = &RetryPolicy{MaxAttempts: new(100), InitialDelay: new(Duration(100 * time.Millisecond)), MaxDelay: new(Duration(time.Second))}
	}), func(context.Context, *Job) error {
		tried.Add(1)
		if well.Load() {
			return nil
		}
		return errors.New("the bank is down")
	})
	eventually(t, "it is open", func() bool { return w.Stats().Breaker == "Open" })
	if got := tried.Load(); got > 20+10 {
		t.Errorf("%d were tried", got)
	}
	before := tried.Load()
	eventually(t, "one is tried", func() bool { return tried.Load() > before })
	if got := tried.Load(); got > before+2 {
		t.Errorf("%d more were tried", got-before)
	}
	well.Store(true)
	eventually(t, "all are done", b.empty)
	if got := w.Stats().Breaker; got != "Closed" {
		t.Errorf("the breaker is %s", got)
	}
	if err := w.end(t); err != nil {
		t.Error(err)
	}
	if letters := b.figures().DeadLetters; letters > 0 {
		t.Errorf("%d dead letters", letters)
	}
}

func TestBadConfigurationIsRefusedByField(t *testing.T) {
	for name, row := range map[string]struct{ config, want string }{
		"no queues":      {"broker: {url: nats://x}", "queues has 0, must have 1 to 16"},
		"no broker":      {"queues: [{name: a}]", "broker must have one of url and urlFile"},
		"a broker twice": {"broker: {url: x, urlFile: y}", "broker must have one of url and urlFile"},
		"two who log in": {
			"broker: {url: x, usernameFile: u, tokenFile: t}", "broker must have no more than one of usernameFile, tokenFile and credentialsFile",
		},
		"a password alone": {"broker: {url: x, passwordFile: p}", "broker has passwordFile, and must then have usernameFile"},
		"an unknown field": {"brokers: {}", `unknown field "brokers"`},
		"not a duration":   {"drainTimeout: 5", "5 is not a duration such as 30s"},
		"a queue's name":   {"{broker: {url: x}, queues: [{name: A}]}", `queues[0]: name is "A"`},
		"a queue's weight": {"{broker: {url: x}, queues: [{name: a, weight: 101}]}", "queues[0]: weight is 101"},
		"a queue twice":    {"{broker: {url: x}, queues: [{name: a}, {name: a}]}", `queues[1]: name "a" is there twice`},
		"a breaker":        {"{broker: {url: x}, queues: [{name: a, circuitBreaker: {window: 1ms}}]}", "queues[0]: circuitBreaker.window is 1ms"},
		"retries":          {"{broker: {url: x}, queues: [{name: a, retry: {maxAttempts: 0}}]}", "queues[0]: retry.maxAttempts is 0"},
		"concurrency":      {"{broker: {url: x}, queues: [{name: a}], concurrency: -1}", "concurrency is -1"},
		"maxInFlight":      {"{broker: {url: x}, queues: [{name: a}], maxInFlight: 9}", "maxInFlight is 9, must not be less than concurrency, 10"},
		"not YAML":         {"\t", "reading the configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig([]byte(row.config))
			if err == nil {
				_, err = c.settings()
			}
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("told %v, want %s", err, row.want)
			}
		})
	}
}
