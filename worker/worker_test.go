package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/login"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestHandlerResultDecidesWhatHappensToTheJobAndIsCounted(t *testing.T) {
	t.Parallel()
	type handler func(ctx context.Context, job *Job, call int) error
	always := func(err error) handler { return func(context.Context, *Job, int) error { return err } }
	atFirst := func(err error) handler {
		return func(_ context.Context, _ *Job, call int) error {
			if call == 1 {
				return err
			}
			return nil
		}
	}
	withLongRetries := []func(*Config){func(c *Config) {
		c.Queues[0].Retry.InitialDelay, c.Queues[0].Retry.MaxDelay = new(Duration(time.Hour)), new(Duration(time.Hour))
	}}
	withOneAttempt := []func(*Config){func(c *Config) { c.Queues[0].Retry.MaxAttempts = new(1) }}
	withoutDeadLetters := []func(*Config){func(c *Config) { c.Queues[0].DeadLetter = &DeadLetterPolicy{Enabled: new(false)} }}
	const retried = "retried: _OTHER"
	once, dead := []string{retried, "done"}, []string{retried, retried, "dead_lettered: _OTHER"}
	for name, row := range map[string]struct {
		changes                    []func(*Config)
		handler                    handler
		succeeded, failed, snoozed int64
		deadLetterText             string
		spans                      []string
	}{
		"nil: the job is done":                                   {handler: always(nil), succeeded: 1, spans: []string{"done"}},
		"an error: the job is retried":                           {handler: atFirst(errors.New("not yet")), succeeded: 1, failed: 1, spans: once},
		"an error in the last attempt: the job is dead-lettered": {handler: always(errors.New("never")), failed: 3, deadLetterText: "never", spans: dead},
		"an error in the last attempt without dead letters: the job is dropped": {
			changes: withoutDeadLetters, handler: always(errors.New("never")), failed: 3, spans: []string{retried, retried, "dropped: _OTHER"},
		},
		"Retry: the job is retried after that time": {
			changes: withLongRetries, handler: atFirst(fmt.Errorf("closed: %w", Retry(time.Millisecond))), succeeded: 1, failed: 1, spans: once,
		},
		"DeadLetter: the job is dead-lettered at once": {
			handler: always(fmt.Errorf("reading it: %w", DeadLetter("not JSON"))), failed: 1, deadLetterText: "reading it: not JSON", spans: dead[2:],
		},
		"Snooze: the attempt does not count": {changes: withOneAttempt, handler: func(_ context.Context, job *Job, call int) error {
			if call < 3 {
				return fmt.Errorf("connection refused: %w", Snooze(time.Millisecond))
			}
			if job.Attempt != 1 {
				return fmt.Errorf("attempt %d, want 1", job.Attempt)
			}
			return nil
		}, succeeded: 1, snoozed: 2, spans: []string{"released", "released", "done"}},
		"a panic: the job is retried": {
			handler: func(context.Context, *Job, int) error { panic("oh no") }, failed: 3, deadLetterText: "panic: oh no", spans: dead,
		},
		"a timeout: the job is retried": {
			changes: []func(*Config){withTimeout}, handler: func(ctx context.Context, _ *Job, _ int) error { return waitForContext(ctx) }, failed: 3,
			deadLetterText: "the job exceeded its timeout of 1s: context deadline exceeded",
			spans:          []string{"retried: timeout", "retried: timeout", "dead_lettered: timeout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t)
			env.Send("x")
			startTime, calls, log := time.Now(), 0, &bytes.Buffer{}
			changes := append([]func(*Config){withFastRetries}, row.changes...)
			provider, spans := newRecorder()
			o := Options{Config: env.config(changes...), Logger: slog.New(slog.NewTextHandler(log, nil)), TracerProvider: provider}
			w := env.startWithOptions(o, func(ctx context.Context, job *Job) error {
				calls++
				return row.handler(ctx, job, calls)
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
				return *got.Succeeded+*got.Failed == row.succeeded+row.failed && env.IsEmpty()
			})
			recent := got.Recent
			got.Recent = nil
			remaining := math.Exp(-time.Since(startTime).Seconds() / recentTime.Seconds()) // the count of an attempt decays
			isCount := func(got, want float64) bool { return got >= want*remaining && got <= want }
			attempts := float64(row.succeeded + row.failed + row.snoozed) // all but the last return the job
			isRecent := recent != nil && isCount(recent.Count, attempts) && isCount(recent.Returned, attempts-1) && recent.Seconds > 0
			require.True(t, isRecent, "recent attempts %+v, want %g, of which all but one returned", recent, attempts)
			want := &workerclient.Stats{
				State: string(StateRunning), Attached: new(true), Queues: make([]struct{}, 1), InFlight: got.InFlight,
				Succeeded: &row.succeeded, Failed: &row.failed, Snoozed: &row.snoozed, Returned: got.Returned, Breaker: got.Breaker,
			}
			require.Equal(t, want, got)
			requireCleanShutdown(t, w)
			require.True(t, float64(calls) == attempts && w.Stats().Overdue == 0, "%d calls, want %g; stats %+v", calls, attempts, w.Stats())
			assert.Equal(t, "spans", row.spans, resultsOf(spans))
			letters := env.DeadLetters()
			switch {
			case row.deadLetterText != "" && strings.Count(log.String(), row.deadLetterText) < int(row.failed):
				t.Errorf("not each failed attempt is logged:\n%s", log)
			case row.deadLetterText == "" && len(letters) > 0:
				t.Errorf("unexpected dead letters %+v", letters)
			case row.deadLetterText != "" && (len(letters) != 1 || letters[0].Error != row.deadLetterText ||
				int64(letters[0].Attempts) != row.failed || string(letters[0].Payload) != "x"):
				t.Errorf("dead letters %+v, want one with the error %q", letters, row.deadLetterText)
			}
		})
	}
}

// A server whose limit was lowered sends its clients no new limit, and ends the connection of a worker that exceeds the limit for good.
func TestAWorkerWhoseConnectionTheServerEndedExits(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	config := env.config(withFastRetries, func(c *Config) { c.Queues[0].Lease = Duration(broker.MinLease) })
	env.Send(strings.Repeat("x", 200<<10))
	lower := sync.OnceFunc(func() {
		lowered := env.Server.Options().Clone()
		lowered.MaxPayload = 64 << 10
		if err := env.Server.ReloadOptions(lowered); err != nil {
			t.Error(err)
		}
	})
	handler := func(context.Context, *Job) error {
		lower()
		return DeadLetter("no route")
	}
	require.ErrorContains(t, <-env.start(config, handler).result, "Maximum Payload Violation")
	next := env.start(config, handler)
	env.WaitUntilEmpty()
	requireCleanShutdown(t, next)
	require.Equal(t, 1, env.Stats().DeadLetters)
}

// A dead letter that the broker refuses is not a reason to run its job again.
func TestAJobWhoseDeadLetterIsRefusedDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	dead := require.Call(env.JS.Stream(t.Context(), "yardmaster_orders_dead")).Succeeds(t)
	setMaximum := func(bytes int32) {
		config := dead.CachedInfo().Config
		config.MaxMsgSize = bytes
		require.Call(env.JS.UpdateStream(t.Context(), config)).Succeeds(t)
	}
	setMaximum(10)
	env.Send("x")
	calls := atomic.Int64{}
	w := env.start(env.config(withFastRetries, func(c *Config) { c.Queues[0].Lease = Duration(broker.MinLease) }), func(context.Context, *Job) error {
		calls.Add(1)
		return errors.New("no route")
	})
	poll.Until(t, "two deliveries whose dead letter is refused", func() bool { return w.countedMessages(resultUnsettled) == 2 })
	setMaximum(-1)
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	require.Equal(t, 1, env.Stats().DeadLetters)
	require.Equal(t, 3, calls.Load())
}

// The worker's clock jumps ahead, so that the worker considers its lease lost while the
// broker has not redelivered the job yet. The same happens after a network partition.
func TestJobsThatEndAfterTheirLeaseAreCounted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		removed bool
		err     error
		want    string
	}{
		"another worker settled the job":  {true, nil, resultStale},
		"no other worker settled the job": {false, nil, resultLate},
		"the job failed":                  {false, errors.New("x"), resultStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t)
			env.Send("x")
			var clockOffset atomic.Int64
			created := env.newWorker(Options{Config: env.config()}, func(context.Context, *Job) error {
				if row.removed {
					env.purge()
				}
				clockOffset.Store(int64(time.Hour))
				return row.err
			})
			created.now = func() time.Time { return time.Now().Add(time.Duration(clockOffset.Load())) }
			w := env.run(created)
			poll.Until(t, "the job to be counted as "+row.want, func() bool { return w.countedMessages(row.want) == 1 })
			require.Equal(t, row.want == resultLate, w.countedMessages(resultDone) == 1)
			requireCleanShutdown(t, w)
		})
	}
}

func TestWorkerWaitsForQueuesThatDoNotExist(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	var done jobLog
	w := env.start(env.config(func(c *Config) { c.Queues = append(c.Queues, QueueConfig{Name: "later"}) }), done.handle)
	env.Send("x")
	poll.Until(t, "the job of the existing queue to be done", func() bool { return done.count() == 1 })
	queuetest.Ensure(t, env.Engine, "later")
	env.SendTo("later", "y")
	poll.Until(t, "the job of the new queue to be done", func() bool { return done.count() == 2 })
	requireCleanShutdown(t, w)
}

// The clock of the worker is stopped while the jobs fail, so that no probe runs before the test expects one.
func TestCircuitBreakerStopsFailingJobsUntilTheyRecover(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	env.Send(numberedPayloads(200)...)
	const cooldown = 500 * time.Millisecond
	var tried atomic.Int32
	var recovered atomic.Bool
	var stoppedTime atomic.Pointer[time.Time]
	stoppedTime.Store(new(time.Now()))
	created := env.newWorker(Options{Config: env.config(func(c *Config) {
		c.Queues[0].CircuitBreaker = &CircuitBreaker{MinSamples: new(20), Cooldown: new(Duration(cooldown))}
		c.Queues[0].Retry = &RetryPolicy{MaxAttempts: new(100), InitialDelay: new(Duration(100 * time.Millisecond)), MaxDelay: new(Duration(time.Second))}
	})}, func(context.Context, *Job) error {
		tried.Add(1)
		if recovered.Load() {
			return nil
		}
		return errors.New("the bank is down")
	})
	created.now = func() time.Time {
		if stopped := stoppedTime.Load(); stopped != nil {
			return *stopped
		}
		return time.Now().Add(2 * cooldown)
	}
	w := env.run(created)
	isOpen := func() bool { s := w.Stats(); return s.Breaker == "Open" && s.InFlight == 0 }
	poll.Until(t, "the breaker to be open", isOpen)
	got := tried.Load()
	require.True(t, got <= 20+10, "%d jobs were tried before the breaker opened, want at most 30", got)
	before := tried.Load()
	stoppedTime.Store(new(stoppedTime.Load().Add(cooldown)))
	poll.Until(t, "a probe to run", func() bool { return tried.Load() > before && isOpen() })
	require.Equal(t, before+1, tried.Load()) // one probe
	recovered.Store(true)
	stoppedTime.Store(nil)
	env.WaitUntilEmpty()
	require.Equal(t, "Closed", w.Stats().Breaker)
	requireCleanShutdown(t, w)
	require.Equal(t, 0, env.Stats().DeadLetters)
}

func TestInvalidConfigurationIsRejectedByField(t *testing.T) {
	for name, row := range map[string]struct{ config, want string }{
		"no queues":       {"broker: {url: nats://x}", "queues has 0 items, must have 1 to 16"},
		"no broker":       {"queues: [{name: a}]", "broker must have exactly one of url and urlFile"},
		"two broker URLs": {"broker: {url: x, urlFile: y}", "broker must have exactly one of url and urlFile"},
		"two logins": {
			"broker: {url: x, usernameFile: u, tokenFile: t}", "broker must have at most one of usernameFile, tokenFile, credentialsFile and nkeyFile",
		},
		"password without username":     {"broker: {url: x, passwordFile: p}", "broker has passwordFile, which requires usernameFile"},
		"an unknown field":              {"brokers: {}", `unknown field "brokers"`},
		"an invalid duration":           {"drainTimeout: 5", "5 is not a duration such as 30s"},
		"an invalid queue name":         {"{broker: {url: x}, queues: [{name: A}]}", `queues[0]: name is "A"`},
		"an invalid queue weight":       {"{broker: {url: x}, queues: [{name: a, weight: 101}]}", "queues[0]: weight is 101"},
		"a duplicate queue":             {"{broker: {url: x}, queues: [{name: a}, {name: a}]}", `queues[1]: name "a" is used twice`},
		"an invalid circuit breaker":    {"{broker: {url: x}, queues: [{name: a, circuitBreaker: {window: 1ms}}]}", "queues[0]: circuitBreaker.window is 1ms"},
		"an invalid retry policy":       {"{broker: {url: x}, queues: [{name: a, retry: {maxAttempts: 0}}]}", "queues[0]: retry.maxAttempts is 0"},
		"a negative concurrency":        {"{broker: {url: x}, queues: [{name: a}], concurrency: -1}", "concurrency is -1"},
		"maxInFlight below concurrency": {"{broker: {url: x}, queues: [{name: a}], maxInFlight: 9}", "maxInFlight is 9, must not be less than concurrency, 10"},
		"invalid YAML":                  {"\t", "parsing the worker configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConfig([]byte(row.config))
			if err == nil {
				_, err = c.validatedSettings()
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestAWorkerContinuesWithAConsumerThatWasDeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	var done jobLog
	w := env.start(env.config(), done.handle)
	env.Send("before")
	env.WaitUntilEmpty()
	require.NoError(t, env.JS.DeleteConsumer(t.Context(), "yardmaster_orders", "default"))
	env.Send(numberedPayloads(20)...)
	require.Equal(t, 20, env.Stats().Ready)
	queuetest.Ensure(t, env.Engine, "orders")
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	require.Equal(t, 21, done.count())
}

// ratedWorkers are workers of a queue with a rate limit and a backlog.
type ratedWorkers struct {
	env       *testEnv
	workers   []*runningWorker
	startTime time.Time
	mu        sync.Mutex
	starts    []time.Time // of jobs
}

func withRateLimit(perSecond int) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: perSecond, Per: time.Second, Burst: 1}
	}
}

func newRatedWorkers(t *testing.T, jobs, perSecond int) *ratedWorkers {
	t.Helper()
	w := &ratedWorkers{env: newTestEnv(t, withRateLimit(perSecond)), startTime: time.Now()}
	w.env.Send(numberedPayloads(jobs)...)
	return w
}

func (w *ratedWorkers) handle(context.Context, *Job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts = append(w.starts, time.Now())
	return nil
}

func (w *ratedWorkers) scale(t *testing.T, n int) {
	t.Helper()
	for len(w.workers) < n {
		w.workers = append(w.workers, w.env.start(w.env.config(), w.handle))
	}
	for len(w.workers) > n {
		requireCleanShutdown(t, w.workers[0])
		w.workers = w.workers[1:]
	}
}

func (w *ratedWorkers) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.starts)
}

// Workers start and stop while a backlog waits, and do not have a limit each. With BENCH set, on an otherwise idle machine, the limit is
// lowered too, on the broker only, and every 10 s window must stay within 5 % of the limit.
func TestRateLimitHoldsAcrossWorkersWhileTheyScaleAndTheLimitChanges(t *testing.T) {
	if os.Getenv("BENCH") != "" {
		measureRates(t)
		return
	}
	const perSecond, jobs = 100, 1000
	w := newRatedWorkers(t, jobs, perSecond)
	for _, phase := range []struct{ workers, jobs int }{{1, 40}, {5, 40}, {20, 300}, {3, 40}} {
		w.scale(t, phase.workers)
		next := min(w.started()+phase.jobs, jobs)
		poll.Until(t, "jobs to start", func() bool { return w.started() >= next })
	}
	w.scale(t, 0)
	slices.SortFunc(w.starts, time.Time.Compare)
	for i, start := range w.starts {
		// Workers without processor time know the clock of the broker inexactly.
		earliest := w.startTime.Add(time.Duration(i)*time.Second/perSecond*2/3 - 500*time.Millisecond)
		require.True(t, !start.Before(earliest), "job %d of %d starts %s too early", i, len(w.starts), earliest.Sub(start))
	}
}

func measureRates(t *testing.T) {
	t.Helper()
	w := newRatedWorkers(t, 4000, 100)
	startTime := time.Now()
	for _, n := range []int{1, 5, 20, 8, 15, 3, 20} {
		w.scale(t, n)
		time.Sleep(2 * time.Second)
	}
	changeStart := time.Now()
	queuetest.Ensure(t, w.env.Engine, "orders", withRateLimit(50))
	changeEnd := time.Now()
	for _, n := range []int{20, 10, 1, 7, 20, 12} {
		w.scale(t, n)
		time.Sleep(2 * time.Second)
	}
	end := time.Now()
	w.scale(t, 0)

	slices.SortFunc(w.starts, time.Time.Compare)
	table := "jobs started in any 10 s\n  limit  fewest  most  allowed\n"
	checkRate := func(from, to time.Time, perSecond int) {
		fewest, most := countWindows(w.starts, from, to)
		want := perSecond * int(rateWindow/time.Second)
		least, greatest := want*95/100, want*105/100
		table += fmt.Sprintf("%5d/s  %6d  %4d  %d to %d\n", perSecond, fewest, most, least, greatest)
		require.True(t, most <= greatest && fewest >= least, "%d to %d jobs start in 10 s, the limit is %d", fewest, most, want)
	}
	checkRate(startTime.Add(time.Second), changeStart, 100) // the first worker needs time to connect
	checkRate(changeEnd, end, 50)
	t.Log(table)
}

// rateWindow is the period over which the rate is measured.
const rateWindow = 10 * time.Second

// countWindows counts the sorted times in every window between two times, and returns the lowest and the highest count.
func countWindows(times []time.Time, from, to time.Time) (fewest, most int) {
	fewest = len(times)
	for at := from; !at.Add(rateWindow).After(to); at = at.Add(100 * time.Millisecond) {
		first, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
		last, _ := slices.BinarySearchFunc(times, at.Add(rateWindow), time.Time.Compare)
		fewest, most = min(fewest, last-first), max(most, last-first)
	}
	return fewest, most
}

// fileWriter returns a function that writes a file in a directory, and returns its path.
func fileWriter(t *testing.T) func(name, text string) string {
	dir := t.TempDir()
	return func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
}

// TestLoginFromURLOrCredentials and TestConnectErrorHasCauseAndNoPassword of the engine have the logins themselves.
func TestALoginThatItsFilesOrItsBrokerDoNotAllowIsReported(t *testing.T) {
	t.Parallel()
	users, writeFile := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "me", "hidden" }), fileWriter(t)
	seed, _ := natstest.NewNKey(t)
	secret, empty := writeFile("secret", "hidden"), writeFile("empty", "\n")
	const redis = "redis://127.0.0.1:1"
	for want, config := range map[string]BrokerConfig{
		"none: ": {URL: redis, UsernameFile: secret + "/none"},
		"broker.usernameFile: " + empty + " is empty":          {URL: redis, UsernameFile: empty},
		"a token cannot log in to Redis":                       {URL: redis, TokenFile: secret},
		"an nkey cannot log in to Redis":                       {URL: redis, NKeyFile: secret},
		"a NATS credentials file cannot log in to Redis":       {URL: redis, CredentialsFile: secret},
		"jetStreamDomain and inboxPrefix are settings of NATS": {URL: redis, JetStreamDomain: "hub"},
	} {
		_, _, err := login.Connect(t.Context(), &config, "test")
		require.ErrorContains(t, err, want)
		require.True(t, broker.ClassOf(err) == broker.ClassInvalid && !strings.Contains(err.Error(), "hidden"), "%v of the class %s", err, broker.ClassOf(err))
	}
	_, _, err := login.Connect(t.Context(), &BrokerConfig{URL: users.ClientURL(), NKeyFile: writeFile("nkey", string(seed))}, "test")
	require.True(t, broker.ClassOf(err) == broker.ClassUnauthorized, "%v of the class %s", err, broker.ClassOf(err))
	require.ErrorContains(t, err, "nkeys not supported by the server")
}

// The password is changed in the file first and then at the broker, which closes all connections.
func TestReconnectUsesTheCurrentContentOfTheFiles(t *testing.T) {
	writeFile := fileWriter(t)
	startNATS := func(login func(o *server.Options, secret string)) (*natstest.Server, func()) {
		s := natstest.Start(t, func(o *server.Options) { login(o, "first") })
		return s, func() {
			login(s.Options(), "second")
			s.Restart()
		}
	}
	withUser := func(o *server.Options, secret string) { o.Username, o.Password = "me", secret }
	users, changeUser := startNATS(withUser)
	inURL, changeURL := startNATS(withUser)
	tokens, changeToken := startNATS(func(o *server.Options, secret string) { o.Authorization = secret })
	firstSeed, firstKey := natstest.NewNKey(t)
	secondSeed, secondKey := natstest.NewNKey(t)
	keys, changeKey := startNATS(func(o *server.Options, secret string) {
		o.Nkeys = []*server.NkeyUser{{Nkey: map[string]string{"first": firstKey, "second": secondKey}[secret]}}
	})
	account := natstest.StartWithAccount(t)
	firstCredentials, revokeFirst := account.NewUser()
	secondCredentials, _ := account.NewUser()
	redis := redistest.Start(t)
	redis.RunCLI("ACL", "SETUSER", "me", "on", ">first", "~*", "&*", "+@all")
	for name, row := range map[string]struct {
		broker BrokerConfig
		path   string
		text   string // content of the file, with % instead of the secret
		change func()
	}{
		"password": {
			BrokerConfig{URL: users.ClientURL(), UsernameFile: writeFile("me", "me"), PasswordFile: writeFile("password", "first")}, "password", "%", changeUser,
		},
		"token":               {BrokerConfig{URL: tokens.ClientURL(), TokenFile: writeFile("token", "first\r\n")}, "token", "%", changeToken},
		"password in the URL": {BrokerConfig{URLFile: writeFile("url", "nats://me:first@"+inURL.Address())}, "url", "nats://me:%@" + inURL.Address(), changeURL},
		"nkey": {
			BrokerConfig{URL: "nats://you:x@" + keys.Address(), NKeyFile: writeFile("nkey", string(firstSeed)+"\n")}, "nkey", string(secondSeed), changeKey,
		},
		"NATS credentials": {
			BrokerConfig{URL: account.ClientURL(), CredentialsFile: writeFile("creds", string(firstCredentials))}, "creds", string(secondCredentials), revokeFirst,
		},
		"Redis password": {
			BrokerConfig{URL: redis.URL(), UsernameFile: writeFile("redis-user", "me"), PasswordFile: writeFile("redis", "first")},
			"redis", "%",
			func() {
				redis.RunCLI("ACL", "SETUSER", "me", "resetpass", ">second")
				redis.RunCLI("CLIENT", "KILL", "USER", "me")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine, _, err := login.Connect(t.Context(), &row.broker, "test")
			require.NoError(t, err)
			defer engine.Disconnect()
			writeFile(row.path, strings.ReplaceAll(row.text, "%", "second"))
			row.change()
			poll.Until(t, "the engine to reconnect", func() bool {
				_, err := engine.Stats(t.Context(), "nowhere")
				return broker.ClassOf(err) == broker.ClassNotFound
			})
		})
	}
}

// documentedPermissions returns the NATS permissions of a worker that docs/worker.md lists, also those for the states of jobs, as they are in
// the domain of the hub.
func documentedPermissions(t *testing.T, inboxes string) *server.Permissions {
	t.Helper()
	page := require.Call(os.ReadFile("../docs/worker.md")).Succeeds(t)
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	const lists = 2
	blocks := regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(list, lists)
	require.True(t, len(blocks) == lists, "docs/worker.md has no two lists of permissions")
	inDomain := strings.NewReplacer("$JS.API.", "$JS.hub.API.", "$KV.", "$JS.hub.API.$KV.")
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: strings.Fields(inDomain.Replace(blocks[0][1] + blocks[1][1]))},
		Subscribe: &server.SubjectPermission{Allow: []string{inboxes}},
	}
}

func TestDocumentedBrokerPermissionsAreSufficientInADomainWithAnInboxPrefix(t *testing.T) {
	t.Parallel()
	seed, public := natstest.NewNKey(t)
	hub, leaf := natstest.StartLeaf(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: documentedPermissions(t, "_INBOX_worker.>")}}
	})
	file := filepath.Join(t.TempDir(), "nkey")
	require.NoError(t, os.WriteFile(file, append(seed, '\n'), 0o600))
	env := &testEnv{queuetest.StartOn(t, hub, "orders", withRateLimit(100), withResults), t}
	env.Send("poison", "good", "retried", "released")
	env.SendWithHeaders("unique", nats.Header{broker.UniqueHeader: {"k"}})
	var wasTried, wasReleased atomic.Bool
	w := env.start(env.config(withFastRetries, func(c *Config) {
		c.Concurrency, c.Queues[0].Results = 1, &ResultsConfig{Retention: Duration(time.Hour)}
		c.Broker = BrokerConfig{URL: "nats://" + leaf.Address(), NKeyFile: file, JetStreamDomain: natstest.HubDomain, InboxPrefix: "_INBOX_worker"}
	}), func(_ context.Context, job *Job) error {
		switch payload := string(job.Payload); {
		case payload == "poison":
			return DeadLetter("bad")
		case payload == "retried" && !wasTried.Swap(true):
			return errors.New("not yet")
		case payload == "released" && !wasReleased.Swap(true):
			return Snooze(time.Millisecond)
		}
		return nil
	})
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	require.Equal(t, 1, env.Stats().DeadLetters)
	reports := func(result string) float64 { return testutil.ToFloat64(w.metrics.reports.WithLabelValues(result)) }
	require.True(t, reports("failed") == 0 && reports("succeeded") >= 4, "%v reports failed, %v succeeded", reports("failed"), reports("succeeded"))
}
