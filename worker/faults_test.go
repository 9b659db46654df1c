package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/faults"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

// deadLetterAttempts is the number of attempts of a job that fails in each of them.
const deadLetterAttempts = 2

// moment is when an actor fails.
type moment string

const (
	inFirstAttempt    moment = "in the first attempt"
	inLastAttempt     moment = "in the last attempt"
	whileDeadLettered moment = "while a job becomes a dead letter"
)

// deadLetterState is the state of a job in which an actor fails.
type deadLetterState struct {
	moment moment
	engine dial.EngineName
}

func (s deadLetterState) String() string { return fmt.Sprintf("%s, on %s", s.moment, s.engine) }

func deadLetterStates() (states []deadLetterState) {
	for _, m := range []moment{inFirstAttempt, inLastAttempt, whileDeadLettered} {
		for _, engine := range []dial.EngineName{dial.NATSEngine, dial.AsynqEngine} {
			states = append(states, deadLetterState{m, engine})
		}
	}
	return states
}

// fate is what happened to all jobs of a queue that fail in each attempt.
type fate struct {
	// Calls of handlers, in all workers.
	Calls       int
	DeadLetters []letter
	// Left are the messages in the queue, and Refused those that the broker did not store.
	Left    int64
	Refused int
}

type letter struct {
	Payload  string
	Attempts int
}

func (f fate) String() string {
	return fmt.Sprintf("%d calls of handlers, %d dead letters, %d messages left", f.Calls, len(f.DeadLetters), f.Left)
}

// buried is the fate of a job with a payload, whose handlers were called that often.
func buried(calls int, payload string) fate {
	return fate{Calls: calls, DeadLetters: []letter{{payload, deadLetterAttempts}}}
}

// A job that fails in each attempt becomes one dead letter after its last attempt, whatever its worker does. An attempt counts if its worker
// is there to report it: the loss of a worker says nothing about its jobs.
func fateBesideAWorker(fault faults.Fault, state deadLetterState) faults.Expectation[fate] {
	calls := deadLetterAttempts
	switch fault {
	case faults.NeverStarts, faults.StartsLate:
		if state.moment != inFirstAttempt {
			return faults.Exclude[fate]("a worker that has not started has no job")
		}
	case faults.ExitsWithAnotherCode, faults.IgnoresSIGTERM, faults.Disappears, faults.IsReplaced, faults.ComesBackWithOldState:
		calls++
	case faults.Hangs:
		if state.moment == whileDeadLettered {
			calls++
		}
	case faults.HasClockThatJumpsAhead: // its lease seems to be lost
		if state.moment != whileDeadLettered {
			calls++
		}
	}
	return faults.Expect(buried(calls, onlyJob))
}

// The same holds whatever happens between the worker and the broker, as long as the broker keeps what it has confirmed.
func fateBehindABroker(fault faults.Fault, state deadLetterState) faults.Expectation[fate] {
	switch {
	case fault == faults.NeverStarts:
		return faults.Exclude[fate]("it has no jobs")
	case fault == faults.ComesBackWithOldState, fault == faults.IsReplaced:
		return faults.Exclude[fate]("nobody else has the jobs that it lost")
	case isLateStart(fault) && state.moment != inFirstAttempt:
		return faults.Exclude[fate]("no worker has received a job from it")
	}
	return faults.Expect(buried(deadLetterAttempts, onlyJob))
}

// The same holds whatever a job contains, and if it is sent again.
func fateOfJob(fault faults.Fault, state deadLetterState) faults.Expectation[fate] {
	switch {
	case fault == faults.Disappears:
		return faults.Exclude[fate]("only someone with access to the broker can delete a job that workers have")
	case fault == faults.ComesBackWithOldState:
		return faults.Exclude[fate]("only a broker that was restored from a backup has old jobs")
	case fault != faults.HasExtremeValues:
		return faults.Expect(buried(deadLetterAttempts, onlyJob))
	case state.moment != inFirstAttempt:
		return faults.Exclude[fate]("its values are the same in each attempt")
	}
	all := fate{Left: 1} // it is due in the year 9999
	if state.engine == dial.NATSEngine {
		all = fate{Refused: 1} // NATS has no time after the year 2262
	}
	for _, payload := range extremePayloads() {
		all.Calls += deadLetterAttempts
		all.DeadLetters = append(all.DeadLetters, letter{payload, deadLetterAttempts})
	}
	return faults.Expect(all)
}

func isLateStart(fault faults.Fault) bool {
	return fault == faults.NeverStarts || fault == faults.StartsLate
}

func TestAJobBecomesOneDeadLetterWhateverItsWorkerDoes(t *testing.T) {
	t.Parallel()
	servers := startServers(t)
	faults.Matrix(t, "a worker", faults.Of(faults.Process, faults.Clock), deadLetterStates(), fateBesideAWorker,
		func(t *testing.T, fault faults.Fault, state deadLetterState) fate {
			q := servers.newQueue(t, state)
			victim := q.newVictim(fault)
			running := q.run(victim.Worker)
			q.send(onlyJob)
			replacement := "replacement"
			switch fault {
			case faults.NeverStarts:
			case faults.StartsLate:
				q.proxy.Repair()
				replacement = "" // the late worker must do the job
			case faults.IsReplaced:
				replacement = victimName
				fallthrough
			default:
				<-q.reached
				q.failWorker(fault, victim, running)
			}
			if replacement != "" {
				q.startReplacement(replacement)
			}
			q.waitUntilLeft(0)
			if fault == faults.ComesBackWithOldState {
				q.resume()
				poll.Until(t, "the first worker to have ended its job", func() bool { return victim.Stats().InFlight == 0 })
			}
			found := q.fate()
			if fault == faults.HasClockThatJumpsAhead && state.moment != whileDeadLettered && found.Calls == deadLetterAttempts {
				found.Calls++ // the victim extended its lease after the jump, before the attempt ended
			}
			return found
		})
}

func TestAJobBecomesOneDeadLetterWhateverItsBrokerDoes(t *testing.T) {
	t.Parallel()
	servers := startServers(t)
	faults.Matrix(t, "a broker", faults.Of(faults.Server), deadLetterStates(), fateBehindABroker,
		func(t *testing.T, fault faults.Fault, state deadLetterState) fate {
			used := servers
			if fault == faults.IsFull {
				used = startServers(t) // the memory of Redis is limited for all queues
			}
			q := used.newQueue(t, state)
			q.run(q.newVictim(fault).Worker)
			q.send(onlyJob)
			if fault != faults.StartsLate {
				<-q.reached
				q.failBroker(fault)
			}
			time.Sleep(outageOf(fault))
			if fault == faults.Hangs {
				q.expireLeases()
			}
			q.repairBroker(fault)
			q.resume()
			q.waitUntilLeft(0)
			found := q.fate()
			if fault == faults.Hangs && found.Calls == deadLetterAttempts+1 { // the lease ended, and the broker was faster than the worker
				found.Calls--
			}
			return found
		})
}

func TestAJobBecomesOneDeadLetterWhateverItContains(t *testing.T) {
	t.Parallel()
	servers := startServers(t)
	faults.Matrix(t, "a job", faults.Of(faults.Object), deadLetterStates(), fateOfJob,
		func(t *testing.T, fault faults.Fault, state deadLetterState) fate {
			q := servers.newQueue(t, state)
			if fault == faults.HasExtremeValues {
				refused := q.sendExtremes()
				q.startReplacement("worker")
				q.waitUntilLeft(int64(1 - refused))
				found := q.fate()
				found.Refused = refused
				return found
			}
			q.run(q.newVictim(fault).Worker)
			q.send(onlyJob)
			<-q.reached
			require.True(t, q.send(onlyJob).Duplicate, "the broker stored a second job with the same ID")
			q.resume()
			q.waitUntilLeft(0)
			return q.fate()
		})
}

const (
	onlyJob    = "the only job"
	victimName = "victim"
	// longestPayload leaves space for the headers of a dead letter in a message of the size that a NATS server accepts.
	longestPayload = 1<<20 - 4<<10
)

// extremePayloads have an order.
func extremePayloads() []string {
	past, _ := faults.Times()
	payloads := append(faults.Texts(longestPayload), dueAt(past))
	for _, number := range faults.Numbers() {
		payloads = append(payloads, retryAfter(number))
	}
	slices.Sort(payloads)
	return payloads
}

func dueAt(due time.Time) string          { return "due at " + due.String() }
func retryAfter(nanoseconds int64) string { return fmt.Sprintf("retry after %d", nanoseconds) }

// outageOf returns how long a broker fails. One that hangs does so for longer than an attempt to settle a job.
func outageOf(fault faults.Fault) time.Duration {
	if fault == faults.Hangs {
		return settleTimeout + time.Second
	}
	return 2 * time.Second
}

// servers are a real server of each engine, for all cells of a matrix.
type servers struct {
	nats  *natstest.Server
	redis *redistest.Server
	// setups limits the queues that are set up at a time: all at once would take longer than the timeout of a request.
	setups chan struct{}
	queues atomic.Int64
}

func startServers(t testing.TB) *servers {
	t.Helper()
	return &servers{nats: natstest.Start(t), redis: redistest.Start(t), setups: make(chan struct{}, 4)}
}

// failingQueue is a queue whose jobs fail in each attempt. One worker of it, the victim, is connected through a proxy.
type failingQueue struct {
	*testEnv

	state   deadLetterState
	server  *servers
	address string // of the server
	redis   *goredis.Client
	proxy   *faults.Proxy
	calls   atomic.Int64
	// reached is closed when the victim is at the moment of the fault, and resumed when it may continue.
	reached, resumed         chan struct{}
	reachedOnce, resumedOnce sync.Once
}

func (s *servers) newQueue(t *testing.T, state deadLetterState) *failingQueue {
	t.Helper()
	s.setups <- struct{}{}
	defer func() { <-s.setups }()
	q := &failingQueue{state: state, server: s, address: s.nats.Address(), reached: make(chan struct{}), resumed: make(chan struct{})}
	name, inMemory := fmt.Sprintf("q%d", s.queues.Add(1)), func(c *broker.QueueConfig) { c.Storage.Type = broker.StorageMemory }
	if state.engine == dial.NATSEngine {
		q.testEnv = &testEnv{queuetest.StartOn(t, s.nats, name, inMemory), t}
	} else {
		q.testEnv, q.address = &testEnv{queuetest.StartAsynqOn(t, s.redis, name, inMemory), t}, s.redis.Address()
	}
	q.redis = goredis.NewClient(&goredis.Options{Addr: s.redis.Address()})
	t.Cleanup(func() { _ = q.redis.Close() })
	q.proxy = faults.StartProxy(t, q.address)
	t.Cleanup(q.resume)
	return q
}

// send sends a job whose ID is its payload.
func (q *failingQueue) send(payload string) broker.SendResult {
	q.t.Helper()
	return require.Call(q.sendJob(&broker.OutgoingJob{ID: strings.ReplaceAll(payload, " ", "-"), Payload: []byte(payload)})).Succeeds(q.t)
}

func (q *failingQueue) sendJob(job *broker.OutgoingJob) (broker.SendResult, error) {
	job.Queue, job.HasChosenID = q.Name, true
	return q.Engine.(broker.Producer).Send(queuetest.PatientContext(q.t), job)
}

// sendExtremes sends jobs with extremePayloads, and a job that is due in the far future. It returns how many of them the broker refuses.
func (q *failingQueue) sendExtremes() (refused int) {
	q.t.Helper()
	past, future := faults.Times()
	for i, payload := range extremePayloads() {
		job := &broker.OutgoingJob{ID: fmt.Sprint("extreme-", i), Payload: []byte(payload)}
		if payload == dueAt(past) {
			job.DueTime = past
		}
		require.Call(q.sendJob(job)).Succeeds(q.t)
	}
	_, err := q.sendJob(&broker.OutgoingJob{ID: "future", Payload: []byte(dueAt(future)), DueTime: future})
	if errors.Is(err, broker.ErrUnsupported) {
		return 1
	}
	require.NoError(q.t, err)
	return 0
}

var errNoRoute = errors.New("no route")

// fail is the handler of workers without a fault.
func (q *failingQueue) fail(_ context.Context, job *Job) error {
	q.calls.Add(1)
	for _, number := range faults.Numbers() {
		if string(job.Payload) == retryAfter(number) && job.Attempt == job.MaxAttempts {
			return Retry(time.Duration(number))
		}
	}
	return errNoRoute
}

// withTwoAttempts retries once, after milliseconds.
func withTwoAttempts(c *Config) {
	withFastRetries(c)
	c.Queues[0].Retry.MaxAttempts = new(deadLetterAttempts)
}

// startReplacement starts a worker without a fault.
func (q *failingQueue) startReplacement(name string) {
	q.t.Helper()
	q.run(q.newWorker(Options{Config: q.config(withTwoAttempts), Pod: name}, q.fail))
}

// victim is the worker behind the proxy.
type victim struct {
	*Worker
	clockOffset atomic.Int64
}

// newVictim returns a worker whose handler waits at the moment of the fault until it may continue, or until its context
// ends. In the moment after the last attempt, it is the connection that waits.
func (q *failingQueue) newVictim(fault faults.Fault) *victim {
	q.t.Helper()
	if isLateStart(fault) {
		q.proxy.Set(fault)
	}
	config := q.config(withTwoAttempts, func(c *Config) {
		c.Broker.URL = strings.Replace(q.URL, q.address, q.proxy.Address(), 1)
		if fault == faults.ExitsWithAnotherCode {
			c.DrainTimeout = Duration(50 * time.Millisecond)
		}
		if fault == faults.Hangs {
			c.Queues[0].JobTimeout = Duration(broker.MinJobTimeout)
		}
	})
	v := &victim{}
	v.Worker = q.newWorker(Options{Config: config, Pod: victimName}, func(ctx context.Context, job *Job) error {
		q.calls.Add(1)
		isFirst, isLast := q.state.moment == inFirstAttempt, job.Attempt == job.MaxAttempts
		if isLateStart(fault) || isFirst && job.Attempt > 1 || !isFirst && !isLast {
			return errNoRoute
		}
		q.waitForRequest()
		if q.state.moment == whileDeadLettered {
			q.reachedOnce.Do(func() { q.proxy.Set(faults.Hangs); close(q.reached) }) // not again, if the lease ends and the job is repeated
			return errNoRoute
		}
		q.reachedOnce.Do(func() { close(q.reached) })
		if fault == faults.Hangs {
			<-q.resumed
			return errNoRoute
		}
		select {
		case <-q.resumed:
			return errNoRoute
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	v.now = func() time.Time { return time.Now().Add(time.Duration(v.clockOffset.Load())) }
	return v
}

// waitForRequest waits until NATS has the request of the victim for its next message. A request that arrives after the fault
// would receive the message whose lease expires, and so cost an attempt.
func (q *failingQueue) waitForRequest() {
	if q.state.engine != dial.NATSEngine {
		return
	}
	err := poll.UntilNil(q.t.Context(), func() error {
		consumer, err := q.JS.Consumer(q.t.Context(), "yardmaster_"+q.Name, broker.DefaultPriority)
		if err == nil && consumer.CachedInfo().NumWaiting == 0 {
			err = errors.New("the victim requests no message")
		}
		return err
	})
	if err != nil && q.t.Context().Err() == nil { // the test may end while a job is repeated
		q.t.Error(err)
	}
}

// resume lets the handler and the connection of the victim continue.
func (q *failingQueue) resume() {
	q.proxy.Repair()
	q.resumedOnce.Do(func() { close(q.resumed) })
}

func (q *failingQueue) failWorker(fault faults.Fault, v *victim, running *runningWorker) {
	q.t.Helper()
	stop := func() {
		running.shutDownNow()
		poll.Until(q.t, "the worker to drain", func() bool { return v.Stats().State != StateRunning })
	}
	switch fault {
	case faults.ExitsWithZero:
		stop()
		q.resume()
		require.NoError(q.t, <-running.result)
	case faults.ExitsWithAnotherCode:
		if q.state.moment == whileDeadLettered {
			q.proxy.Set(faults.Disappears) // otherwise it exits with 0 as soon as the dead letter is stored
		}
		stop()
		require.ErrorIs(q.t, <-running.result, ErrDrainTimeout)
		q.lose(faults.Disappears)
	case faults.IgnoresSIGTERM: // until the kubelet kills it
		stop()
		q.lose(faults.Disappears)
	case faults.Disappears, faults.IsReplaced:
		q.lose(faults.Disappears)
	case faults.Hangs:
		if q.state.moment == whileDeadLettered {
			q.lose(faults.Hangs)
			return
		}
		poll.Until(q.t, "the handler to ignore its timeout", func() bool { return v.Stats().Overdue == 1 })
		q.drain(v)
	case faults.ComesBackWithOldState:
		q.lose(faults.Hangs)
	case faults.HasClockThatJumpsAhead, faults.HasClockThatJumpsBack:
		v.clockOffset.Store(int64(faults.Jump(fault)))
		q.resume()
		q.drain(v)
	default:
		q.t.Fatalf("no worker that %s", fault)
	}
}

// drain drains the victim, and lets the lease of a job expire that it has abandoned.
func (q *failingQueue) drain(v *victim) {
	q.t.Helper()
	v.Drain()
	poll.Until(q.t, "the worker to be drained", func() bool { return v.Stats().State == StateDrained })
	q.expireLeases()
}

// lose ends the connection of the victim, and lets its lease expire.
func (q *failingQueue) lose(fault faults.Fault) {
	q.t.Helper()
	q.proxy.Set(fault)
	q.expireLeases()
}

// expireLeases lets all leases expire that the victim does not extend. Short leases would also expire on a busy machine.
func (q *failingQueue) expireLeases() {
	q.t.Helper()
	if q.state.engine == dial.AsynqEngine {
		q.setTimes("lease")
		return
	}
	ctx, stream := q.t.Context(), "yardmaster_"+q.Name
	consumer := require.Call(q.JS.Consumer(ctx, stream, broker.DefaultPriority)).Succeeds(q.t)
	config := consumer.CachedInfo().Config
	setLease := func(lease time.Duration) {
		config.AckWait = lease
		require.Call(q.JS.UpdateConsumer(ctx, stream, config)).Succeeds(q.t)
	}
	poll.Until(q.t, "the requests of the lost worker to expire", func() bool {
		info, err := consumer.Info(ctx)
		return err == nil && info.NumWaiting == 0
	})
	lease := config.AckWait
	setLease(time.Millisecond)
	poll.Until(q.t, "the lease to expire", func() bool {
		stats, err := q.Engine.Stats(ctx, q.Name)
		return err == nil && (stats.RetryDue || stats.InFlight == 0)
	})
	setLease(lease)
}

// setTimes makes the tasks of a sorted set of asynq expired or due. asynq notices a lost worker after a minute or two, and
// then delays its task for 15 seconds or more.
func (q *failingQueue) setTimes(set string) {
	q.t.Helper()
	if q.state.engine != dial.AsynqEngine {
		return
	}
	key := "asynq:{" + q.Name + "}:" + set
	tasks, err := q.redis.ZRange(q.t.Context(), key, 0, -1).Result()
	for _, task := range tasks {
		err = cmp.Or(err, q.redis.ZAddXX(q.t.Context(), key, goredis.Z{Score: 1, Member: task}).Err())
	}
	if err != nil {
		q.t.Log(err)
	}
}

func (q *failingQueue) failBroker(fault faults.Fault) {
	q.t.Helper()
	if fault != faults.IsFull {
		q.proxy.Set(fault)
		return
	}
	q.setSpace(1)
	if q.state.moment == whileDeadLettered {
		q.proxy.Repair()
	}
}

func (q *failingQueue) repairBroker(fault faults.Fault) {
	q.t.Helper()
	if fault == faults.IsFull {
		q.setSpace(0)
	}
	q.proxy.Repair()
}

// setSpace limits what the broker stores, 0: not at all. On NATS, only the dead letters are limited.
func (q *failingQueue) setSpace(bytes int64) {
	q.t.Helper()
	if q.state.engine == dial.AsynqEngine {
		q.server.redis.RunCLI("CONFIG", "SET", "maxmemory", fmt.Sprint(bytes))
		return
	}
	dead := require.Call(q.JS.Stream(q.t.Context(), "yardmaster_"+q.Name+"_dead")).Succeeds(q.t)
	config := dead.CachedInfo().Config
	config.Discard, config.MaxBytes = natsjs.DiscardNew, cmp.Or(bytes, -1)
	require.Call(q.JS.UpdateStream(q.t.Context(), config)).Succeeds(q.t)
}

// waitUntilLeft waits until the queue has only that many messages. Dead letters do not count.
func (q *failingQueue) waitUntilLeft(messages int64) {
	q.t.Helper()
	poll.Until(q.t, "all jobs to be dead letters", func() bool {
		q.setTimes("retry")
		stats, err := q.Engine.Stats(q.t.Context(), q.Name)
		return err == nil && stats.Ready+stats.InFlight+stats.Delayed <= messages
	})
}

func (q *failingQueue) fate() fate {
	q.t.Helper()
	found := fate{Calls: int(q.calls.Load()), Left: q.Left()}
	for _, one := range q.DeadLetters() {
		found.DeadLetters = append(found.DeadLetters, letter{string(one.Payload), one.Attempts})
	}
	slices.SortFunc(found.DeadLetters, func(a, b letter) int { return cmp.Compare(a.Payload, b.Payload) })
	return found
}
