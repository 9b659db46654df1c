package jetstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

var ordersStreams = []string{"yardmaster_orders", "yardmaster_orders_delayed", "yardmaster_orders_dead", "KV_yardmaster_orders"}

func connectToCluster(t *testing.T, c *natstest.Cluster) *Engine {
	t.Helper()
	return connectWith(t, broker.Credentials{URL: c.URL()})
}

// startTwoOfThree runs a cluster of two servers, which the third server can join.
func startTwoOfThree(t *testing.T) *natstest.Cluster {
	t.Helper()
	c := natstest.NewCluster(t, 3)
	for _, s := range c.Servers[:2] {
		s.Options().Routes = s.Options().Routes[:2]
	}
	c.Run(c.Servers[:2]...)
	return c
}

func withReplicas(n int) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) { q.Storage.Replicas = n }
}

func withDrift(drift broker.DriftPolicy) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) { q.Drift = drift }
}

// allStreams reports whether something holds for all streams of the queue.
func allStreams(t *testing.T, e *Engine, holds func(*jetstream.StreamInfo) bool) bool {
	t.Helper()
	for _, name := range ordersStreams {
		stream, err := e.js.Stream(t.Context(), name)
		if err != nil || !holds(stream.CachedInfo()) {
			return false
		}
	}
	return true
}

// waitForStats waits until a server answers, and the queue has a leader.
func waitForStats(t *testing.T, e *Engine) {
	t.Helper()
	poll.Until(t, "the stats of the queue", func() bool {
		_, err := e.Stats(t.Context(), "orders")
		return err == nil
	})
}

func assertReplicas(t *testing.T, e *Engine, want int) {
	t.Helper()
	isRight := allStreams(t, e, func(i *jetstream.StreamInfo) bool { return i.Config.Replicas == want })
	require.True(t, isRight, "a stream does not have %d replicas", want)
}

// waitUntilCurrent waits until all replicas of the queue have all messages.
func waitUntilCurrent(t *testing.T, e *Engine, q broker.QueueConfig, want int) {
	t.Helper()
	var last broker.EnsureResult
	defer func() {
		if t.Failed() {
			t.Logf("the last state: %+v, drift %+v", last.Storage, last.Drift)
		}
	}()
	poll.Until(t, fmt.Sprintf("%d current replicas", want), func() bool {
		result, err := e.EnsureQueue(t.Context(), q)
		if err != nil {
			t.Log(err)
			return false
		}
		last = result
		return *result.Storage == broker.StorageState{Replicas: want, CurrentReplicas: want}
	})
}

// receiveAll receives and acknowledges messages until none is left, and returns their payloads.
func receiveAll(t *testing.T, e *Engine, queue string, want int) []string {
	t.Helper()
	consumer := openConsumer(t, e, queue, "default")
	defer consumer.Stop()
	var payloads []string
	poll.Until(t, fmt.Sprintf("%d messages to be delivered", want), func() bool {
		_, err := consumer.Next(t.Context(), 100*time.Millisecond, func(d broker.Delivery) {
			payloads = append(payloads, string(d.Message().Payload))
			require.NoError(t, d.Ack(t.Context(), true))
		})
		if err != nil {
			t.Log(err)
		}
		return len(payloads) >= want
	})
	return payloads
}

func TestLosingTheServerThatLeadsTheStreamLosesNoAcknowledgedMessage(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	e := connectToCluster(t, c)
	q := ordersQueue()
	ensureQueue(t, e, q)
	waitUntilCurrent(t, e, q, 3)
	var sent []string
	for i := range 100 {
		sent = append(sent, fmt.Sprintf("job %03d", i))
		publish(t, e, readySubject("orders", "default"), sent[i])
	}
	stream := require.Call(e.js.Stream(t.Context(), "yardmaster_orders")).Succeeds(t)
	lost := c.Named(stream.CachedInfo().Cluster.Leader)
	lost.Stop()

	waitForStats(t, e)
	received := receiveAll(t, e, "orders", len(sent))
	slices.Sort(received)
	require.Equal(t, sent, slices.Compact(received))
	poll.Until(t, "the lost replica to be reported", func() bool {
		result, err := e.EnsureQueue(t.Context(), q)
		if err != nil {
			return false
		}
		s := result.Storage
		return s.Replicas == 3 && s.CurrentReplicas == 2 && s.OfflineReplicas == 1
	})
	c.Run(lost)
	waitUntilCurrent(t, e, q, 3)
}

func TestAQueueOnOneServerHasOneReplica(t *testing.T) {
	e := startEngine(t)
	q := ordersQueue()
	for call := range 2 {
		result := ensureQueue(t, e, q)
		s := result.Storage
		require.True(t, s.Replicas == 1 && !s.RefusesConfig && strings.Contains(s.Refusal, "non-clustered"), "call %d: %+v", call, s)
		require.True(t, !result.Updated && len(result.Drift) == 0, "call %d changes something: %+v", call, result)
	}
	assertReplicas(t, e, 1)
	require.Equal(t, 1, ensureQueue(t, e, q).Storage.CurrentReplicas)
}

func TestAQueueGetsThreeReplicasWhenTheThirdServerJoins(t *testing.T) {
	t.Parallel()
	c := startTwoOfThree(t)
	e := connectToCluster(t, c)
	q := ordersQueue()
	s := ensureQueue(t, e, q).Storage
	require.True(t, s.Replicas == 1 && s.Refusal != "" && !s.RefusesConfig, "with two servers: %+v", s)
	assertReplicas(t, e, 1)
	publish(t, e, readySubject("orders", "default"), "job")
	c.Run(c.Servers[2])
	waitUntilCurrent(t, e, q, 3)
	assertReplicas(t, e, 3)
	got := readStats(t, e, "orders")
	require.True(t, got.Ready == 1, "%+v", got)
}

func TestRequiredReplicasAreNeverLowered(t *testing.T) {
	t.Parallel()
	c := startTwoOfThree(t)
	e := connectToCluster(t, c)
	_, err := e.EnsureQueue(t.Context(), ordersQueue(withReplicas(3)))
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid && strings.Contains(fmt.Sprint(err), "the server refuses 3 replicas; "), "got %v", err)
	_, err = e.js.Stream(t.Context(), "yardmaster_orders")
	require.True(t, isNotFound(err), "the queue is created: %v", err)

	ensureQueue(t, e, ordersQueue(withReplicas(1)))
	q := ordersQueue(withReplicas(3), withDrift(broker.DriftWarn), func(q *broker.QueueConfig) { q.MaxAge = time.Hour })
	for call := range 2 {
		result := ensureQueue(t, e, q)
		s := result.Storage
		require.True(t, result.Updated && s.Replicas == 1 && s.Refusal != "" && s.RefusesConfig, "call %d: %+v, %+v", call, result, s)
	}
	assertReplicas(t, e, 1)
	require.Equal(t, time.Hour, streamConfigOf(t, e, "yardmaster_orders").MaxAge)

	c.Run(c.Servers[2])
	waitUntilCurrent(t, e, q, 3)
	assertReplicas(t, e, 3)
	result := ensureQueue(t, e, q)
	require.True(t, !result.Updated && len(result.Drift) == 0, "afterwards: %+v", result)
}

func TestReplicasFollowTheDriftPolicy(t *testing.T) {
	t.Parallel()
	raised := func(want, found int) []string {
		var all []string
		for _, stream := range slices.Backward(ordersStreams) {
			all = append(all, fmt.Sprintf("stream %s: num_replicas is %d, should be %d", stream, found, want))
		}
		return all
	}
	c := natstest.StartCluster(t, 3)
	for name, row := range map[string]struct {
		config broker.QueueConfig
		found  int
		drift  []string
		want   int
	}{
		"a lowered default":                {ordersQueue(), 1, raised(3, 1), 3},
		"a lowered default, and Warn":      {ordersQueue(withDrift(broker.DriftWarn)), 1, nil, 1},
		"a lowered number":                 {ordersQueue(withReplicas(3)), 1, raised(3, 1), 3},
		"a lowered number, and Warn":       {ordersQueue(withReplicas(3), withDrift(broker.DriftWarn)), 1, raised(3, 1), 1},
		"a raised number":                  {ordersQueue(withReplicas(1)), 3, raised(1, 3), 1},
		"two replicas, which are too few":  {ordersQueue(), 2, raised(3, 2), 3},
		"the required number is the found": {ordersQueue(withReplicas(1)), 1, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := connectToCluster(t, c)
			ensureQueue(t, e, row.config)
			for _, stream := range ordersStreams { // as someone else does
				changeStream(t, e, stream, func(c *jetstream.StreamConfig) { c.Replicas = row.found })
			}
			poll.Until(t, "the server to carry out all changes", func() bool {
				return allStreams(t, e, func(i *jetstream.StreamInfo) bool { return i.Cluster.Desired == nil })
			})
			result := ensureQueue(t, e, row.config)
			require.Equal(t, row.drift, notifies(result))
			require.True(t, !result.Updated, "%+v", result)
			assertReplicas(t, e, row.want)
			deleteQueue(t, e)
		})
	}
}

func TestAnUpgradeAddsReplicasUnlessDriftIsWarn(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	for drift, want := range map[broker.DriftPolicy]int{broker.DriftCorrect: 3, broker.DriftWarn: 1} {
		t.Run(string(drift), func(t *testing.T) {
			e := connectToCluster(t, c)
			ensureQueue(t, e, ordersQueue(withReplicas(1)))
			changeStream(t, e, "yardmaster_orders", func(old *jetstream.StreamConfig) {
				delete(old.Metadata, metaOwnerCluster) // which the first version did not record
				old.Metadata[metaApplied] = "the hash of another version"
			})
			result := ensureQueue(t, e, ordersQueue(withDrift(drift)))
			require.True(t, result.Updated && result.Storage.Refusal == "", "%+v, %+v", result, result.Storage)
			assertReplicas(t, e, want)
			deleteQueue(t, e)
		})
	}
}

func TestPlacementAppliesToAllStreams(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	for i, s := range c.Servers {
		s.Options().Tags.Add(fmt.Sprintf("rack:%d", i))
	}
	c.Run(c.Servers...)
	e := connectToCluster(t, c)
	on := func(tags ...string) broker.QueueConfig {
		return ordersQueue(withReplicas(1), func(q *broker.QueueConfig) { q.Storage.Placement = &broker.Placement{Tags: tags} })
	}
	isOn := func(server string) func() bool {
		return func() bool {
			return allStreams(t, e, func(i *jetstream.StreamInfo) bool { return i.Cluster.Leader == server })
		}
	}
	ensureQueue(t, e, on("rack:1"))
	poll.Until(t, "the queue to be on n1", isOn("n1"))
	ensureQueue(t, e, on("rack:2"))
	poll.Until(t, "the queue to move to n2", isOn("n2"))

	result := ensureQueue(t, e, on("rack:9"))
	require.True(t, result.Storage.RefusesConfig && strings.Contains(result.Storage.Refusal, "rack:9"), "%+v", result.Storage)
	require.Equal(t, `cluster "", tags "rack:2"`, formatPlacement(streamConfigOf(t, e, "yardmaster_orders").Placement))
	ensureQueue(t, e, on())
	isFree := allStreams(t, e, func(i *jetstream.StreamInfo) bool { return i.Config.Placement == nil })
	require.True(t, isFree, "a stream still has the placement")
}

// The server refuses to change the replicas of a stream that it still moves.
func TestAPlacementAndMoreReplicasAreAppliedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 4)
	for _, s := range c.Servers[1:] {
		s.Options().Tags.Add("disk:fast")
	}
	c.Run(c.Servers...)
	e := connectToCluster(t, c)
	ensureQueue(t, e, ordersQueue(withReplicas(1)))
	q := ordersQueue(withReplicas(3), func(q *broker.QueueConfig) {
		q.Storage.Placement, q.Drift = &broker.Placement{Cluster: "test", Tags: []string{"disk:fast"}}, broker.DriftWarn
	})
	waitUntilCurrent(t, e, q, 3)
	isPlaced := allStreams(t, e, func(i *jetstream.StreamInfo) bool {
		return i.Cluster.Leader != "n0" && !slices.ContainsFunc(i.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == "n0" })
	})
	require.True(t, isPlaced, "a stream is on the server without the tag")
}

func TestStorageTypeAppliesToAllStreamsAndIsImmutable(t *testing.T) {
	e := startEngine(t)
	inMemory := func(q *broker.QueueConfig) { q.Storage.Type = broker.StorageMemory }
	ensureQueue(t, e, ordersQueue(inMemory))
	isInMemory := allStreams(t, e, func(i *jetstream.StreamInfo) bool { return i.Config.Storage == jetstream.MemoryStorage })
	require.True(t, isInMemory, "a stream is stored in files")
	_, err := e.EnsureQueue(t.Context(), ordersQueue())
	require.True(t, broker.ClassOf(err) == broker.ClassInvalid && strings.Contains(fmt.Sprint(err), "its storage is"), "got %v", err)
}

func TestReplicasThatAServerReportsAreBounded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		replicas int
		cluster  *jetstream.ClusterInfo
		want     [3]int
	}{
		"nothing about a cluster":      {3, nil, [3]int{3, 0, 0}},
		"an empty cluster":             {3, &jetstream.ClusterInfo{}, [3]int{3, 0, 0}},
		"a negative number":            {-7, &jetstream.ClusterInfo{Leader: "a"}, [3]int{0, 0, 0}},
		"too many":                     {1 << 40, nil, [3]int{5, 0, 0}},
		"a missing replica":            {3, &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{nil, {Current: true}}}, [3]int{3, 2, 0}},
		"an offline, current replica":  {3, &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{{Current: true, Offline: true}}}, [3]int{3, 1, 1}},
		"more current than configured": {1, &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{{Current: true}, {Offline: true}, {Offline: true}}}, [3]int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: row.replicas}, Cluster: row.cluster}
			configured, current, offline := replicasOf(info)
			require.Equal(t, row.want, [3]int{configured, current, offline})
		})
	}
}

func withResults(retention time.Duration) func(*broker.QueueConfig) {
	return func(q *broker.QueueConfig) {
		q.Results = broker.ResultsConfig{Retention: retention, MaxBytes: broker.DefaultResultsBytes}
	}
}

func TestTheBucketWithStatesIsCreatedCorrectedAndDeletedWithTheField(t *testing.T) {
	e := startEngine(t)
	ensure := func(changes ...func(*broker.QueueConfig)) broker.EnsureResult {
		t.Helper()
		return ensureQueue(t, e, ordersQueue(changes...))
	}
	bucket := func() *jetstream.StreamConfig {
		stream, err := e.js.Stream(t.Context(), "KV_yardmaster_orders_jobs")
		if err != nil {
			return nil
		}
		return &stream.CachedInfo().Config
	}
	ensure()
	require.True(t, bucket() == nil, "a queue without the field has a bucket")
	ensure(withResults(time.Hour))
	config := bucket()
	require.True(t, config != nil && config.MaxBytes == broker.DefaultResultsBytes && config.Discard == jetstream.DiscardOld, "%+v", config)
	require.Equal(t, time.Hour, config.MaxAge)
	require.Call(e.js.KeyValue(t.Context(), "yardmaster_orders_jobs")).Succeeds(t)
	changeStream(t, e, "KV_yardmaster_orders_jobs", func(c *jetstream.StreamConfig) { c.MaxAge = 2 * time.Minute })
	result := ensure(withResults(time.Hour))
	require.True(t, len(result.Drift) == 1 && result.Corrected && bucket().MaxAge == time.Hour, "drift %v", result.Drift)
	require.Contains(t, result.Drift[0].String(), "max_age is 2m0s, should be 1h0m0s")
	ensure(withResults(2 * time.Hour))
	require.True(t, bucket().MaxAge == 2*time.Hour, "the retention has not changed")
	ensure()
	require.True(t, bucket() == nil, "the bucket exists without the field")
	q := ordersQueue(withResults(time.Hour))
	ensure(withResults(time.Hour))
	err := e.DeleteQueue(t.Context(), "orders", q.Owner)
	require.True(t, err == nil && bucket() == nil, "the bucket of a deleted queue exists: %v", err)
}

func TestAQueueWithoutStatesHasTheHashOfBefore(t *testing.T) {
	t.Parallel()
	q := ordersQueue()
	with := ordersQueue(withResults(time.Hour))
	require.True(t, broker.HashConfig(q.WithoutOwner()) != broker.HashConfig(with.WithoutOwner()), "the field does not change the hash")
	raw, err := json.Marshal(q.WithoutOwner())
	require.True(t, err == nil && !strings.Contains(string(raw), "Results"), "an upgrade would change each queue: %s", raw)
}

func TestKeysOfJobsAreTokens(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"17": "17", "a-B_9": "a-B_9", "a.b": "=YS5i", "": "=", "ö": "=w7Y", "=": "=PQ"} {
		token := keyToken(id)
		require.True(t, token == want, "%q is %q, want %q", id, token, want)
		back, valid := idFromToken(token)
		require.True(t, id == "" || back == id && valid, "%q is %q again", id, back)
	}
}
