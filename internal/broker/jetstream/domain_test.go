package jetstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

// These are the permissions that docs/queue.md lists for a domain and an inbox prefix.
func TestAQueueOfTheHubIsManagedThroughALeafNodeWithRestrictedInboxes(t *testing.T) {
	t.Parallel()
	seed, public := natstest.NewNKey(t)
	hub, leaf := natstest.StartLeaf(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.hub.API.>", "yardmaster.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"yardmaster.>", "_INBOX_operator.>"}},
		}}}
	})
	e := connectWith(t, broker.Credentials{
		URL: "nats://" + leaf.Address(), NKeySeed: seed, JetStreamDomain: natstest.HubDomain, InboxPrefix: "_INBOX_operator",
	})
	ensureQueue(t, e, ordersQueue(withRateLimit(5, 1)))
	again := ensureQueue(t, e, ordersQueue(withRateLimit(7, 1)))
	require.True(t, !again.Created && again.Updated && len(again.Drift) == 0, "again: %+v", again)
	atHub := connectTo(t, hub)
	publish(t, atHub, "yardmaster.orders.ready.default", "x")
	buryNext(t, atHub, "dead")
	require.NoError(t, e.WaitForMessage(t.Context(), "orders"))
	f := readStats(t, e, "orders")
	require.True(t, f.Ready == 1 && f.DeadLetters == 1, "stats %+v", f)
	result, err := e.Rescue(t.Context(), "orders")
	require.True(t, err == nil && result.Rescued == 0 && result.Stranded != nil && *result.Stranded == 0, "rescued %+v: %v", result, err)
	n, err := e.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{Number: 10})
	require.True(t, n == 1 && err == nil, "%d dead letters were requeued: %v", n, err)
	require.Equal(t, 2, readStats(t, atHub, "orders").Ready)
	require.NoError(t, e.DeleteQueue(t.Context(), "orders", aliceOwner))
	left, err := atHub.js.AccountInfo(t.Context())
	require.True(t, err == nil && left.Streams == 0, "%v; the hub has %+v", err, left)
}

// These are the permissions that docs/engines.md lists for a source.
func TestAConsumerOfTheHubIsReadThroughALeafNodeWithRestrictedInboxes(t *testing.T) {
	t.Parallel()
	seed, public := natstest.NewNKey(t)
	hub, leaf := natstest.StartLeaf(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.*.API.CONSUMER.INFO.orders.billing", "$JS.hub.API.STREAM.INFO.orders"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_operator.>"}},
		}}}
	})
	atHub := connectTo(t, hub)
	_, err := createOrders(t, atHub).CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})
	require.NoError(t, err)
	publish(t, atHub, "orders.new", "x")
	for domain, want := range map[string]string{natstest.HubDomain: "", "nowhere": "the JetStream domain nowhere does not respond"} {
		source, err := NewConsumerSource(t.Context(), broker.Credentials{
			URL: "nats://" + leaf.Address(), NKeySeed: seed, JetStreamDomain: domain, InboxPrefix: "_INBOX_operator", Dial: boundedDial,
		}, ConsumerOptions{Stream: "orders", Consumer: "billing"})
		require.NoError(t, err)
		t.Cleanup(source.Disconnect)
		reading, err := source.Read(t.Context())
		if want == "" && (err != nil || reading.Backlog != 1) || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("domain %s: %+v, %v", domain, reading, err)
		}
	}
}
