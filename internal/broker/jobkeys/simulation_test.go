package jobkeys

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	simLease       = 30 * time.Second
	simWindow      = 2 * time.Minute
	simCallTimeout = 10 * time.Second
	simQueue       = "orders"
)

// simulation is a broker with one queue, whose requests take random times by the clock of a synctest bubble, and can fail
// before or after they have an effect.
type simulation struct {
	t    *testing.T
	seed uint64

	mu     sync.Mutex
	random *rand.Rand
	// isReliable: nothing fails and nobody crashes any more.
	isReliable atomic.Bool
	keys       map[broker.Key]simValue
	revision   uint64
	messages   []*simMessage
	sentTimes  map[string]time.Time
	// running has the holders of each key that a handler runs for.
	running map[string]map[string]bool
	// accepted has the jobs whose producers have a confirmation.
	accepted []*simMessage
}

type simValue struct {
	value    []byte
	revision uint64
	expiry   time.Time
}

// simMessage is a job that the broker stores.
type simMessage struct {
	id, key, holder, batch, member string
	headers                        map[string][]string
	sentTime, due, leaseEnd        time.Time
	isAcknowledged                 bool
	// acceptedTime is when its producer had the confirmation, endedTime when a handler first decided about it.
	acceptedTime, endedTime time.Time
	runs                    int
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	return &simulation{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, seed)), keys: map[broker.Key]simValue{}, sentTimes: map[string]time.Time{},
		running: map[string]map[string]bool{},
	}
}

func (s *simulation) intN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// process is a producer or a worker, which can die before and after each request.
type process struct {
	*simulation
	broker.Producer // nil: simulations call only Send

	isDead atomic.Bool
}

// killed is what the goroutines of a process that dies panic with.
type killed struct{}

// surviveKill runs a goroutine of a process. It reports whether the process died.
func surviveKill(run func()) (died bool) {
	defer func() {
		if reason := recover(); reason != nil {
			if _, died = reason.(killed); !died {
				panic(reason)
			}
		}
	}()
	run()
	return false
}

var errSimulated = &broker.SendError{Failure: broker.ErrUnavailable, Err: errors.New("the request failed")}

// request runs an effect on the broker.
func (p *process) request(ctx context.Context, effect func() error) error {
	if err := p.travel(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	err := effect()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.travel(ctx)
}

// travel is the way of a request or of its answer.
func (p *process) travel(ctx context.Context) error {
	p.dieSometimes()
	const slow, never = 20, 40
	pause := time.Duration(p.intN(20_000)) * time.Microsecond
	switch fate := p.intN(slow * never); {
	case p.isReliable.Load():
	case fate < slow:
		return errSimulated
	case fate < slow+never:
		pause = time.Duration(p.intN(8)) * time.Second
	}
	select {
	case <-time.After(pause):
		p.dieSometimes()
		return nil
	case <-ctx.Done():
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: context.Cause(ctx)}
	}
}

func (p *process) dieSometimes() {
	if p.isReliable.Load() && !p.isDead.Load() {
		return
	}
	if p.isDead.Load() || p.intN(100) == 0 {
		p.isDead.Store(true)
		panic(killed{})
	}
}

func (p *process) ReadKey(ctx context.Context, _ string, key broker.Key) (value []byte, revision uint64, err error) {
	err = p.request(ctx, func() error {
		stored := p.stored(key)
		value, revision = stored.value, stored.revision
		return nil
	})
	return value, revision, err
}

func (s *simulation) stored(key broker.Key) simValue {
	if stored := s.keys[key]; time.Now().Before(stored.expiry) {
		return stored
	}
	return simValue{}
}

func (p *process) WriteKey(
	ctx context.Context, _ string, key broker.Key, value []byte, expiry time.Duration, revision uint64,
) (written uint64, err error) {
	err = p.request(ctx, func() error {
		if p.stored(key).revision != revision {
			return broker.ErrKeyChanged
		}
		p.revision++
		written = p.revision
		p.keys[key] = simValue{value, written, time.Now().Add(expiry)}
		return nil
	})
	return written, err
}

func (p *process) Send(ctx context.Context, job *broker.OutgoingJob) (result broker.SendResult, err error) {
	if p.intN(20) == 0 {
		return result, &broker.SendError{Failure: broker.ErrQueueFull, Err: errors.New("full")}
	}
	err = p.request(ctx, func() error {
		result.ID = job.ID
		if sent, found := p.sentTimes[job.ID]; found && time.Since(sent) < simWindow {
			result.Duplicate = true
			return nil
		}
		p.sentTimes[job.ID] = time.Now()
		p.messages = append(p.messages, &simMessage{
			id: job.ID, key: job.UniqueKey, holder: job.Holder, batch: job.BatchID, member: job.BatchMember, headers: job.CommonHeaders(),
			sentTime: time.Now(), due: time.Now(),
		})
		return nil
	})
	return result, err
}

func (p *process) StoredHolder(ctx context.Context, job *broker.OutgoingJob, duplicate broker.SendResult) (holder string, err error) {
	err = p.request(ctx, func() error {
		for _, m := range p.messages { // the last one is that which the broker recognizes
			if m.id == duplicate.ID && m.isAcknowledged {
				holder = ""
			} else if m.id == duplicate.ID {
				holder = job.HolderOf(m.headers)
			}
		}
		return nil
	})
	return holder, err
}

// work runs a worker with some executors, until the queue is empty after stop. A worker that dies is replaced.
func (s *simulation) work(stop <-chan struct{}) {
	for {
		worker := &process{simulation: s}
		keys := New(worker)
		var executors sync.WaitGroup
		for range 3 {
			executors.Go(func() { surviveKill(func() { worker.execute(keys, stop) }) })
		}
		executors.Wait()
		if !worker.isDead.Load() {
			return
		}
	}
}

func (p *process) execute(keys *Keys, stop <-chan struct{}) {
	for {
		message, isEmpty := p.receive()
		if message != nil {
			p.handle(keys, message)
			continue
		}
		select {
		case <-stop:
			if isEmpty {
				return
			}
		default:
		}
		time.Sleep(500 * time.Millisecond)
		p.dieSometimes()
	}
}

// receive leases a random message that is due.
func (p *process) receive() (message *simMessage, isEmpty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []*simMessage
	isEmpty = true
	for _, m := range p.messages {
		isEmpty = isEmpty && m.isAcknowledged
		if now := time.Now(); !m.isAcknowledged && !now.Before(m.due) && !now.Before(m.leaseEnd) {
			due = append(due, m)
		}
	}
	if len(due) == 0 {
		return nil, isEmpty
	}
	message = due[p.random.IntN(len(due))]
	message.leaseEnd = time.Now().Add(simLease)
	return message, false
}

// handle is what the runtime of a worker does with a message.
func (p *process) handle(keys *Keys, m *simMessage) {
	held := keys.Of(simQueue, m.id, m.headers)
	ctx, cancel := context.WithTimeout(context.Background(), simCallTimeout)
	start, err := held.Start(ctx, m.sentTime, time.Now())
	cancel()
	failed := false
	switch {
	case err != nil:
		p.release(m, time.Second)
		return
	case start.Postponed > 0:
		p.release(m, start.Postponed)
		return
	case start.Duplicate:
		p.acknowledge(m)
		return
	case start.Dead != "":
		p.t.Errorf("%s: %s", m.id, start.Dead)
	default:
		isRetried := false
		if failed, isRetried = p.run(m); isRetried {
			p.release(m, time.Second)
			return
		}
	}
	for time.Now().Before(m.leaseEnd) {
		ctx, cancel := context.WithTimeout(context.Background(), simCallTimeout/2)
		err := held.End(ctx, failed)
		cancel()
		if err == nil {
			p.acknowledge(m)
			return
		}
	}
}

// run is a handler, whose worker extends the lease.
func (p *process) run(m *simMessage) (failed, isRetried bool) {
	p.requireMayRun(m)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running[m.key], m.holder)
	}()
	for range p.intN(4) {
		time.Sleep(time.Duration(p.intN(5000)) * time.Millisecond)
		p.mu.Lock()
		m.leaseEnd = time.Now().Add(simLease)
		p.mu.Unlock()
		p.dieSometimes()
	}
	outcome := p.intN(4)
	p.mu.Lock()
	defer p.mu.Unlock()
	if isRetried = outcome == 0; !isRetried && m.endedTime.IsZero() {
		m.endedTime = time.Now()
	}
	return outcome == 1, isRetried
}

// requireMayRun checks that no other job with the key runs, and that a final job is the last of its batch.
func (p *process) requireMayRun(m *simMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.runs++
	if m.key != "" {
		if p.running[m.key] == nil {
			p.running[m.key] = map[string]bool{}
		}
		p.running[m.key][m.holder] = true
		require.True(p.t, len(p.running[m.key]) <= 1, "with the key %s, several jobs run: %v", m.key, p.running[m.key])
	}
	if m.member != broker.FinalMember {
		return
	}
	for _, other := range p.messages {
		switch {
		case other.batch != m.batch || other == m:
		case other.member == broker.FinalMember && other.runs > 0:
			p.t.Errorf("the final job of %s runs from two messages", m.batch)
		case other.member != broker.FinalMember && !p.hasEnded(m.batch, other.member):
			p.t.Errorf("the final job of %s runs before %s has ended", m.batch, other.member)
		}
	}
}

// hasEnded reports whether one of the messages of a job has ended: a producer that repeats its call after the window of the
// broker stores another one.
func (s *simulation) hasEnded(batch, member string) bool {
	for _, m := range s.messages {
		if m.batch == batch && m.member == member && !m.endedTime.IsZero() {
			return true
		}
	}
	return false
}

func (p *process) release(m *simMessage, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.due, m.leaseEnd = time.Now().Add(delay), time.Time{}
}

// acknowledge can be lost, as that of a worker that does not wait for the confirmation.
func (p *process) acknowledge(m *simMessage) {
	_ = p.travel(context.Background())
	time.Sleep(time.Duration(p.intN(2)*p.intN(5000)) * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.isAcknowledged = p.isReliable.Load() || p.random.IntN(20) > 0
}

// produce sends unique jobs.
func (s *simulation) produce(name string) {
	for number := range 1 + s.intN(4) {
		producer := &process{simulation: s}
		surviveKill(func() { producer.enqueue(fmt.Sprintf("%s.%d", name, number)) })
		time.Sleep(time.Duration(s.intN(10)) * time.Second)
	}
}

// enqueue repeats a call with a chosen ID until its result is known.
func (p *process) enqueue(id string) {
	hasID, key := p.intN(2) == 0, fmt.Sprintf("key%d", p.intN(2))
	for range 5 {
		job := &broker.OutgoingJob{Queue: simQueue, IsUnique: true, UniqueKey: key}
		if hasID {
			job.ID, job.HasChosenID = id, true
		}
		ctx, cancel := context.WithTimeout(context.Background(), simCallTimeout)
		started := time.Now()
		result, err := Send(ctx, p, job)
		cancel()
		switch {
		case err == nil:
			p.requireAccepted(job, result, started)
			return
		case errors.Is(err, broker.ErrKeyTaken), !hasID:
			return
		}
		longest := 4 * simWindow
		if p.intN(2) == 0 {
			longest = 10 * time.Second // about when its job ends
		}
		time.Sleep(time.Duration(p.intN(int(longest/time.Millisecond))) * time.Millisecond)
	}
}

// requireAccepted checks that no job with the key was accepted before the call started and has not ended yet.
func (p *process) requireAccepted(job *broker.OutgoingJob, result broker.SendResult, started time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, other := range p.accepted {
		isKept := other.acceptedTime.Before(started) && now.Sub(other.acceptedTime) < LockTime && other.endedTime.IsZero()
		if other.key == job.UniqueKey && other.id != result.ID && isKept && !result.Duplicate {
			p.t.Errorf("%s was accepted while %s has the key %s", result.ID, other.id, other.key)
		}
	}
	isStored := false
	for _, m := range p.messages {
		isStored = isStored || m.id == result.ID
		if m.id == result.ID && m.endedTime.IsZero() && m.acceptedTime.IsZero() {
			m.acceptedTime = now
			p.accepted = append(p.accepted, m)
			return
		}
	}
	require.True(p.t, isStored, "%s was accepted, and is not stored", result.ID)
}

// simulate runs producers and workers with a seed, and then lets everything end.
func simulate(t *testing.T, s *simulation, producers []func()) {
	stop := make(chan struct{})
	var producing, working sync.WaitGroup
	for _, produce := range producers {
		producing.Go(produce)
	}
	if s.intN(5) == 0 {
		time.Sleep(LockTime + time.Hour) // no worker runs for so long that keys expire
	}
	for range 2 {
		working.Go(func() { s.work(stop) })
	}
	producing.Wait()
	time.Sleep(time.Minute)
	s.isReliable.Store(true)
	close(stop)
	working.Wait()
	for _, m := range s.accepted {
		require.True(t, !m.endedTime.IsZero(), "%s was accepted, and did not run", m.id)
	}
	time.Sleep(endedTime)
	defer func() {
		if t.Failed() {
			t.Logf("the seed was %d", s.seed)
		}
	}()
	for key := range s.keys {
		value := s.stored(key).value
		require.True(t, key.Kind != broker.UniqueKey || value == nil, "%s is not released: %s", key.Name, value)
	}
}

// simulateMany runs simulations until one fails: KEY_RUNS, or else some.
func simulateMany(t *testing.T, producers func(*simulation) []func()) {
	t.Helper()
	t.Parallel()
	for range testbuilder.NumberFromEnv(t, "KEY_RUNS", 1000) {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(t, seed)
			simulate(t, s, producers(s))
		})
		if t.Failed() {
			return
		}
	}
}

func TestAKeyIsNeverTakenTwiceNorForeverAndNoAcceptedJobIsLost(t *testing.T) {
	simulateMany(t, func(s *simulation) (producers []func()) {
		for number := range 3 {
			producers = append(producers, func() { s.produce(strconv.Itoa(number)) })
		}
		return producers
	})
}

func TestTheFinalJobOfEachBatchRunsFromOneMessageAfterAllOthers(t *testing.T) {
	simulateMany(t, func(s *simulation) (producers []func()) {
		for number := range 2 {
			producers = append(producers, func() { s.produceBatch(fmt.Sprintf("batch%d", number)) })
		}
		return producers
	})
}

// produceBatch repeats the call of a producer that fails or dies, or gives up.
func (s *simulation) produceBatch(id string) {
	total := 1 + s.intN(12)
	isComplete, isFinalSent := false, false
	for range 4 {
		producer := &process{simulation: s}
		surviveKill(func() { isComplete = producer.enqueueBatch(id, total) == nil })
		if isComplete || s.intN(3) == 0 {
			break
		}
		time.Sleep(time.Duration(s.intN(int(2*simWindow/time.Second))) * time.Second)
	}
	s.mu.Lock()
	for _, m := range s.messages {
		isFinalSent = isFinalSent || m.batch == id && m.member == broker.FinalMember
	}
	s.mu.Unlock()
	s.t.Cleanup(func() { s.requireBatch(id, isComplete, isFinalSent) })
}

// enqueueBatch does what EnqueueBatch of package client does.
func (p *process) enqueueBatch(id string, total int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stored, err := OpenBatch(ctx, p, simQueue, id, total, time.Now())
	if err != nil || stored.Complete {
		return err
	}
	for number := range total + 1 {
		job := &broker.OutgoingJob{
			Queue: simQueue, ID: fmt.Sprintf("%s:%d", id, number), HasChosenID: true, BatchID: id, BatchMember: strconv.Itoa(number),
		}
		if number == total {
			job.ID, job.BatchMember, job.Holder = id, broker.FinalMember, fmt.Sprint(p.intN(1<<30))
		}
		if stored.HasEnded(number) {
			continue
		}
		if _, err := p.Send(ctx, job); err != nil {
			return err
		}
	}
	return CompleteBatch(ctx, p, simQueue, id)
}

// requireBatch checks a batch when nothing runs any more.
func (s *simulation) requireBatch(id string, isComplete, isFinalSent bool) {
	value := s.stored(batchKey(id)).value
	batch := jobstate.DecodeBatch(value)
	switch {
	case batch == nil:
		require.True(s.t, !isComplete && !isFinalSent, "%s is missing", id)
	case isFinalSent && (!batch.Done || !batch.Complete || batch.EndedCount() != batch.Total):
		s.t.Errorf("all jobs of %s are stored, and it has not ended: %s", id, value)
	case !isFinalSent && (batch.Done || batch.Complete):
		s.t.Errorf("%s has no final job, and has ended: %s", id, value)
	}
}

// producerOutOfTime finds a key that is reserved for another job. It has no more time when it reads the key again.
type producerOutOfTime struct {
	broker.Producer
	broker.KeyStore

	reads int
	end   context.CancelFunc
}

func (p *producerOutOfTime) ReadKey(ctx context.Context, _ string, _ broker.Key) ([]byte, uint64, error) {
	p.reads++
	if p.reads > 1 {
		p.end()
		return nil, 0, broker.SendErrorOf(ctx.Err())
	}
	return []byte(`{"id":"lost","holder":"h"}`), 1, nil
}

func (*producerOutOfTime) WriteKey(context.Context, string, broker.Key, []byte, time.Duration, uint64) (uint64, error) {
	return 0, broker.ErrKeyChanged
}

func TestAProducerWhoseTimeEndsWhileItReadsAReservedKeyNamesTheKey(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	producer := &producerOutOfTime{end: cancel}
	_, err := Send(ctx, producer, &broker.OutgoingJob{Queue: "orders", IsUnique: true, UniqueKey: "k"})
	failure := (*broker.SendError)(nil)
	isRight := errors.As(err, &failure) && errors.Is(failure.Failure, broker.ErrUnavailable) && failure.Field == "unique"
	require.True(t, isRight && producer.reads == 2, "after %d reads: %v (%+v), want an error of the field unique", producer.reads, err, failure)
}
