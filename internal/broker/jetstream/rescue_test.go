package jetstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// limitDeliveries sets max_deliver of a consumer, as versions before v0.2 did, or someone by hand.
func limitDeliveries(t *testing.T, e *Engine, priority string, limit int, changes ...func(*jetstream.ConsumerConfig)) {
	t.Helper()
	config := consumerInfo(t, e, priority).Config
	config.MaxDeliver = limit
	for _, change := range changes {
		change(&config)
	}
	require.Call(e.js.UpdateConsumer(t.Context(), "yardmaster_orders", config)).Succeeds(t)
}

// failDeliveries receives the next message that often with a client that is no worker of ours, and never acknowledges it.
func failDeliveries(t *testing.T, e *Engine, priority string, times int) {
	t.Helper()
	for range times {
		require.NoError(t, fetchOne(t, e, "orders", priority).Retry(t.Context(), 0, "it failed"))
	}
}

// strandOne publishes a message that the server stops delivering, and deletes its advisory.
func strandOne(t *testing.T, e *Engine, payload string, headers nats.Header) {
	t.Helper()
	limitDeliveries(t, e, "default", 2)
	before := strandedCount(t, e)
	publishWithHeaders(t, e, "yardmaster.orders.ready.default", payload, headers)
	failDeliveries(t, e, "default", 2)
	pollUntilGivenUp(t, e, "the server to stop delivering the message", func() bool { return strandedCount(t, e) == before+1 })
	deleteAdvisories(t, e)
}

func deleteAdvisories(t *testing.T, e *Engine) {
	t.Helper()
	dead := require.Call(e.js.Stream(t.Context(), "yardmaster_orders_dead")).Succeeds(t)
	require.NoError(t, dead.Purge(t.Context(), jetstream.WithPurgeSubject(maxDeliveriesSubject("orders"))))
}

// storeAdvisories makes the dead letter stream store advisories, as versions before v0.2 did.
func storeAdvisories(t *testing.T, e *Engine) {
	t.Helper()
	changeStream(t, e, "yardmaster_orders_dead", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, maxDeliveriesSubject("orders")) })
}

func assertRescued(t *testing.T, e *Engine, want int, left int64) {
	t.Helper()
	got, err := e.Rescue(t.Context(), "orders")
	isRescued := err == nil && got.Rescued == want && got.Stranded != nil && *got.Stranded == left
	require.True(t, isRescued, "%+v, want %d rescued, %d left: %v", got, want, left, err)
}

// strandedCount returns -1 if the number is unknown.
func strandedCount(t *testing.T, e *Engine) int64 {
	t.Helper()
	stream := require.Call(e.js.Stream(t.Context(), "yardmaster_orders")).Succeeds(t)
	n := require.Call(countStranded(t.Context(), stream, "orders")).Succeeds(t)
	if n == nil {
		return -1
	}
	return *n
}

// With a limit, releases by draining workers used it up too, and the server forgot the message.
func TestTheServerNeverStopsDeliveringAMessage(t *testing.T) {
	e := startWithQueue(t, func(q *broker.QueueConfig) { q.Retry.MaxAttempts, q.DeadLetter.Retention = 1, 30*time.Second })
	publish(t, e, "yardmaster.orders.ready.default", "x")
	const deliveries = 120
	for number := range deliveries {
		d := fetchOne(t, e, "orders", "default")
		attempt := attemptNumber(t, d)
		require.True(t, attempt == 1, "delivery %d is attempt %d", number+1, attempt)
		require.NoError(t, d.Release(t.Context(), 0))
	}
	require.Equal(t, "x", string(fetchOne(t, e, "orders", "default").Message().Payload))
	require.Equal(t, 0, strandedCount(t, e))
}

func TestARescuedMessageReleasesItsKeyAndHasEndedInItsBatch(t *testing.T) {
	e := startWithQueue(t, withDrift(broker.DriftWarn))
	require.Call(jobkeys.OpenBatch(t.Context(), e, "orders", "x", 1, time.Now())).Succeeds(t)
	key := broker.Key{Kind: broker.UniqueKey, Name: "k"}
	require.Call(e.WriteKey(t.Context(), "orders", key, []byte(`{"id":"a","holder":"1","confirmed":true}`), time.Hour, 0)).Succeeds(t)
	strandOne(t, e, "stranded", nats.Header{
		broker.UniqueHeader: {"k"}, broker.HolderHeader: {"1"}, broker.BatchHeader: {"x"}, broker.MemberHeader: {"0"},
	})
	require.Equal(t, 1, require.Call(e.Rescue(t.Context(), "orders")).Succeeds(t).Rescued)
	value, _, err := e.ReadKey(t.Context(), "orders", key)
	require.True(t, err == nil && jobstate.DecodeLock(value).IsFree(), "%s, %v", value, err)
	batch, err := jobkeys.ReadBatch(t.Context(), e, "orders", "x")
	require.True(t, err == nil && batch.EndedCount() == 1 && batch.Failed == 1, "%+v, %v", batch, err)
	letters := listDeadLetters(t, e, "orders")
	require.Equal(t, "stranded", payloadsOf(letters))
	isKept := letters[0].Headers[broker.UniqueHeader] != nil && letters[0].Headers[broker.BatchHeader] == nil
	require.True(t, isKept && letters[0].MessageID == "yardmaster_orders/1" && letters[0].Error == reasonGivenUp, "%+v", letters)
}

func TestAnUpgradeRescuesStrandedMessagesAndDeletesAdvisories(t *testing.T) {
	e := startWithQueue(t)
	storeAdvisories(t, e)
	strandOne(t, e, "without an advisory", nil)
	publish(t, e, "yardmaster.orders.ready.default", "with an advisory")
	failDeliveries(t, e, "default", 2)
	pollUntilGivenUp(t, e, "an advisory", func() bool { return readStats(t, e, "orders").DeadLetters > 0 })
	changeStream(t, e, "yardmaster_orders", func(c *jetstream.StreamConfig) { c.Metadata[metaApplied] = "the hash of another version" })
	result := ensureQueue(t, e, ordersQueue(withDrift(broker.DriftWarn)))
	require.True(t, result.Updated && len(result.Drift) == 0, "the upgrade is reported as drift: %+v", result)
	f := readStats(t, e, "orders")
	require.True(t, f.DeadLetters == 0, "stats before the first sweep: %+v", f)
	assertRescued(t, e, 2, 0)
	require.Equal(t, "without an advisory with an advisory", payloadsOf(listDeadLetters(t, e, "orders")))
	require.Equal(t, unlimitedDeliveries, consumerInfo(t, e, "default").Config.MaxDeliver)
}

// pollUntilGivenUp waits until the server has given up on messages. It detects the limit at the next delivery.
func pollUntilGivenUp(t *testing.T, e *Engine, what string, isGivenUp func() bool) {
	t.Helper()
	consumer := require.Call(e.js.Consumer(t.Context(), "yardmaster_orders", "default")).Succeeds(t)
	poll.Until(t, what, func() bool {
		require.Call(consumer.FetchNoWait(2 * broker.MaxRescued)).Succeeds(t)
		return isGivenUp()
	})
}

// The server does not say which messages a consumer holds, so the sweep takes only those that it cannot hold.
func TestMessagesThatWorkersHoldAreNeverRescued(t *testing.T) {
	e := startWithQueue(t)
	publish(t, e, "yardmaster.orders.ready.default", "held")
	held := fetchOne(t, e, "orders", "default")
	strandOne(t, e, "stranded", nil)
	publish(t, e, "yardmaster.orders.ready.default", "retried")
	require.NoError(t, fetchOne(t, e, "orders", "default").Retry(t.Context(), time.Hour, "it failed"))
	publish(t, e, "yardmaster.orders.ready.default", "waiting")

	assertRescued(t, e, 0, 1)
	require.NoError(t, held.Ack(t.Context(), true))
	assertRescued(t, e, 1, 0)
	require.Equal(t, "stranded", payloadsOf(listDeadLetters(t, e, "orders")))
	f := readStats(t, e, "orders")
	require.True(t, f.InFlight == 1 && f.Ready == 1 && f.Delayed == 0, "stats %+v", f)
}

// lateStream acknowledges the message before its deletion, as a worker does meanwhile.
type lateStream struct {
	jetstream.Stream
	held broker.Delivery
}

func (s *lateStream) DeleteMsg(ctx context.Context, sequence uint64) error {
	if err := s.held.Ack(ctx, true); err != nil {
		return err
	}
	return s.Stream.DeleteMsg(ctx, sequence)
}

func TestAMessageThatIsAcknowledgedDuringItsRescueIsNotDead(t *testing.T) {
	e := startWithQueue(t)
	publish(t, e, "yardmaster.orders.ready.default", "x")
	stream := require.Call(e.js.Stream(t.Context(), "yardmaster_orders")).Succeeds(t)
	late := &lateStream{stream, fetchOne(t, e, "orders", "default")}
	require.Equal(t, 0, require.Call(e.buryStranded(t.Context(), late, "orders", 1, reasonGivenUp)).Succeeds(t))
	f := readStats(t, e, "orders")
	require.True(t, f.DeadLetters+f.InFlight == 0, "stats %+v", f)
}

func TestADelayedMessageOfARemovedPriorityIsRescuedWhenItIsDue(t *testing.T) {
	e := startWithQueue(t, withPriorities("high", "low"))
	due := time.Now().Add(3 * time.Second).Truncate(time.Second) // schedules have no fractions of a second
	publish(t, e, "yardmaster.orders.delayed.one", "later", jetstream.WithScheduleAt(due),
		jetstream.WithScheduleTarget("yardmaster.orders.due.low.one"))
	ensureQueue(t, e, ordersQueue(withPriorities("high")))
	stranded := strandedCount(t, e)
	require.True(t, stranded == 0 || !time.Now().Before(due), "%d messages are stranded before they are due", stranded)
	poll.Until(t, "the message to be due", func() bool { return strandedCount(t, e) == 1 })
	assertRescued(t, e, 1, 0)
	got := listDeadLetters(t, e, "orders")
	require.True(t, len(got) == 1 && string(got[0].Payload) == "later" && got[0].Error == reasonRetired, "dead letters %+v", got)
}

func TestARescueIsBoundedAndContinues(t *testing.T) {
	e := startWithQueue(t)
	limitDeliveries(t, e, "default", 1)
	const stranded = broker.MaxRescued + 20
	want := make([]string, stranded)
	for i := range stranded {
		want[i] = fmt.Sprint(i)
		publish(t, e, "yardmaster.orders.ready.default", want[i])
		failDeliveries(t, e, "default", 1)
	}
	pollUntilGivenUp(t, e, "the server to give up on all messages", func() bool { return strandedCount(t, e) == stranded })
	assertRescued(t, e, broker.MaxRescued, 20)
	assertRescued(t, e, 20, 0)
	letters, err := e.DeadLetters("orders").List(t.Context(), 0, 0)
	got := payloadsOf(letters)
	require.True(t, err == nil && got == strings.Join(want, " "), "dead letters %s: %v", got, err)
}

// scenario applies random operations to a queue whose server limits deliveries, and knows the fate of each message that a worker settled for good.
type scenario struct {
	t         *testing.T
	server    *natstest.Server
	engine    *Engine
	random    *rand.Rand
	published int
	delayed   int64
	held      []broker.Delivery
	// settled are the payloads of acknowledged and terminated messages.
	settled map[string]bool
	log     []string
}

func newScenario(t *testing.T, seed uint64) *scenario {
	t.Helper()
	s := &scenario{t: t, server: natstest.Start(t), random: rand.New(rand.NewPCG(seed, 0)), settled: map[string]bool{}}
	s.engine = connectTo(t, s.server)
	ensureQueue(t, s.engine, ordersQueue())
	storeAdvisories(t, s.engine)
	limitDeliveries(t, s.engine, "default", 2, func(c *jetstream.ConsumerConfig) { c.AckWait = 500 * time.Millisecond })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(s.log, ", "))
		}
	})
	return s
}

// receive returns the next message; nil if none is due.
func (s *scenario) receive() (received broker.Delivery) {
	s.t.Helper()
	consumer := openConsumer(s.t, s.engine, "orders", "default")
	defer consumer.Stop()
	require.Call(consumer.Fetch(s.t.Context(), 1, func(d broker.Delivery) { received = d })).Succeeds(s.t)
	return received
}

// settle ends a delivery in a random way. Its lease may be over, so another delivery may have ended it before.
func (s *scenario) settle(d broker.Delivery) {
	s.t.Helper()
	ctx, payload, err := s.t.Context(), string(d.Message().Payload), error(nil)
	switch what := s.random.IntN(6); what {
	case 0:
		err, s.settled[payload] = d.Ack(ctx, true), true
	case 1:
		err, s.settled[payload] = d.(*leasedMessage).message.Term(), true
	case 2:
		err = d.Bury(ctx, "bad", 1)
	case 3:
		err = d.Release(ctx, 0)
	default:
		err = d.Retry(ctx, time.Duration(s.random.IntN(300))*time.Millisecond, "it failed")
	}
	require.NoError(s.t, err)
}

func (s *scenario) step() {
	s.t.Helper()
	operations := map[string]func(){
		"publish": func() {
			publish(s.t, s.engine, "yardmaster.orders.ready.default", fmt.Sprint(s.published))
			s.published++
		},
		"delay": func() {
			s.delayed++
			publish(s.t, s.engine, fmt.Sprint("yardmaster.orders.delayed.", s.delayed), "later",
				jetstream.WithScheduleAt(time.Now().Add(time.Hour)), jetstream.WithScheduleTarget(fmt.Sprint("yardmaster.orders.due.default.", s.delayed)))
		},
		"receive": func() {
			if d := s.receive(); d != nil {
				s.settle(d)
			}
		},
		"hold": func() { // and never settle it, like a worker that was killed, unless there is a settle later
			if d := s.receive(); d != nil {
				s.held = append(s.held, d)
			}
		},
		"settle": func() {
			if len(s.held) > 0 {
				s.settle(s.held[0])
				s.held = s.held[1:]
			}
		},
		"trim":   func() { deleteAdvisories(s.t, s.engine) },
		"rescue": func() { require.Call(s.engine.Rescue(s.t.Context(), "orders")).Succeeds(s.t) },
		"restart": func() {
			s.server.Restart()
			waitForStats(s.t, s.engine)
		},
	}
	weighted := slices.Concat(slices.Repeat([]string{"publish", "receive"}, 8), slices.Repeat([]string{"hold", "settle"}, 3),
		[]string{"delay", "trim", "rescue", "restart"})
	name := weighted[s.random.IntN(len(weighted))]
	s.log = append(s.log, name)
	operations[name]()
}

// fates returns the payloads of the messages that the broker has, by state.
func (s *scenario) fates() (delivered, dead map[string]bool) {
	s.t.Helper()
	delivered, dead = map[string]bool{}, map[string]bool{}
	limitDeliveries(s.t, s.engine, "default", unlimitedDeliveries)
	poll.Until(s.t, "each message to be delivered or dead", func() bool {
		require.Call(s.engine.Rescue(s.t.Context(), "orders")).Succeeds(s.t)
		for d := s.receive(); d != nil; d = s.receive() {
			delivered[string(d.Message().Payload)] = true
			require.NoError(s.t, d.Ack(s.t.Context(), true))
		}
		f := readStats(s.t, s.engine, "orders")
		return f.Ready+f.InFlight == 0 && strandedCount(s.t, s.engine) == 0
	})
	f := readStats(s.t, s.engine, "orders")
	require.True(s.t, f.Delayed == s.delayed, "%d messages are delayed, want %d", f.Delayed, s.delayed)
	for _, letter := range listDeadLetters(s.t, s.engine, "orders") {
		dead[string(letter.Payload)] = true
	}
	return delivered, dead
}

func TestEachMessageIsSettledDeliverableDelayedOrDead(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := newScenario(t, seed)
			for range 120 {
				s.step()
			}
			delivered, dead := s.fates()
			stranded := 0
			for number := range s.published {
				payload := fmt.Sprint(number)
				require.True(t, s.settled[payload] || delivered[payload] || dead[payload], "message %s is lost", payload)
				if dead[payload] && !s.settled[payload] {
					stranded++
				}
			}
			t.Logf("of %d messages, %d are settled, %d were deliverable, %d are dead", s.published, len(s.settled), len(delivered), stranded)
		})
	}
}

// After the loss of its leader, a consumer holds its messages, and its floor may be lower than before. So the
// stranded message waits until the other one is done.
func TestAnotherServerOfAClusterRescuesTheSameMessages(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	e := connectToCluster(t, c)
	q := ordersQueue()
	ensureQueue(t, e, q)
	waitUntilCurrent(t, e, q, 3)
	strandOne(t, e, "stranded", nil)
	publish(t, e, "yardmaster.orders.ready.default", "held")
	held := fetchOne(t, e, "orders", "default")
	publish(t, e, "yardmaster.orders.ready.default", "waiting")

	c.Named(consumerInfo(t, e, "default").Cluster.Leader).Stop()
	rescue := func() (result broker.RescueResult) {
		poll.Until(t, "the other servers to answer", func() (answered bool) {
			var err error
			result, err = e.Rescue(t.Context(), "orders")
			return err == nil && result.Stranded != nil
		})
		return result
	}
	before := rescue()
	isOne := int64(before.Rescued)+*before.Stranded == 1
	require.True(t, isOne, "while a worker holds a message: %d rescued, %d stranded", before.Rescued, *before.Stranded)
	require.NoError(t, held.Ack(t.Context(), true))
	after := rescue()
	require.True(t, before.Rescued+after.Rescued == 1 && *after.Stranded == 0, "afterwards: %d rescued, %d stranded", after.Rescued, *after.Stranded)
	require.Equal(t, "stranded", payloadsOf(listDeadLetters(t, e, "orders")))
	f := readStats(t, e, "orders")
	require.True(t, f.Ready == 1 && f.InFlight+f.Delayed == 0, "stats %+v", f)
}
