package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	queuesOfEach = 5
	letters      = 300 // in each queue: more than one batch
)

// 15 queues, five of each deletionPolicy, are created and deleted while two operators without leader
// election are killed about every second. Each queue must be deleted or retained on the broker
// according to its policy, and each dead letter must be moved exactly once.
func TestDeletionPoliciesHoldWhileTwoOperatorsAreKilledEverySecond(t *testing.T) {
	ns := cluster.NewNamespace(t, "crash-", nil)
	s := natstest.Start(t)
	require.NoError(t, cluster.Create(t.Context(), testbuilder.BrokerSecret(ns, "broker", "url", s.ClientURL())))

	end := runOperators(t, 2, time.Second, false, "--namespaces", ns, "--controllers=queue")
	declare(t, ns, "archive", "Retain")
	var names []string
	for _, policy := range []string{"Retain", "Drain", "Purge"} {
		for i := range queuesOfEach {
			name := fmt.Sprintf("%s-%d", strings.ToLower(policy), i)
			declare(t, ns, name, policy)
			names = append(names, name)
		}
	}
	waitForQueues(t, ns, func(q *v1alpha1.Queue) bool {
		return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady)
	}, len(names)+1)
	js := jetStream(t, s)
	for _, name := range names {
		for range letters {
			if _, err := js.PublishAsync("yardmaster."+name+".dead.default", []byte("poison")); err != nil {
				t.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		require.NoError(t, cluster.Delete(t.Context(), q))
	}
	waitForQueues(t, ns, func(*v1alpha1.Queue) bool { return true }, 1)
	t.Logf("%d queues were created and deleted with %d operators", len(names), len(end()))
	checkStreams(t, js)
	cluster.RemoveFinalizers(t, ns, "Queue")
}

// checkStreams compares the streams on the server with the expected ones.
func checkStreams(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	got, want := map[string]uint64{}, map[string]uint64{"yardmaster_archive": 0, "yardmaster_archive_dead": 3 * queuesOfEach * letters, "yardmaster_archive_delayed": 1}
	for i := range queuesOfEach {
		want[fmt.Sprintf("yardmaster_retain-%d", i)] = 0
		want[fmt.Sprintf("yardmaster_retain-%d_dead", i)] = 0
		want[fmt.Sprintf("yardmaster_retain-%d_delayed", i)] = 1 // its guard
	}
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		if !strings.HasPrefix(info.Config.Name, "KV_") {
			got[info.Config.Name] = info.State.Msgs
			if strings.HasSuffix(info.Config.Name, "_delayed") {
				got[info.Config.Name] = min(got[info.Config.Name], 1) // a killed operator may leave a second guard
			}
		}
	}
	if streams.Err() != nil {
		t.Fatal(streams.Err())
	}
	assert.Equal(t, "streams and their messages", want, got)
}

func declare(t *testing.T, ns, name, policy string) {
	t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	q.Spec.Name = name
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "broker"
	q.Spec.DeletionPolicy = v1alpha1.DeletionPolicy(policy)
	if name != "archive" {
		q.Spec.DeadLetter = &v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterMove, MoveToRef: &v1alpha1.LocalReference{Name: "archive"}}
	}
	require.NoError(t, cluster.Create(t.Context(), q))
}

// waitForQueues waits until the number of Queues is as given, and all satisfy the condition.
func waitForQueues(t *testing.T, ns string, so func(*v1alpha1.Queue) bool, number int) {
	t.Helper()
	if err := poll.UntilNil(t.Context(), func() error {
		var list v1alpha1.QueueList
		if err := cluster.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		are := 0
		for i := range list.Items {
			if so(&list.Items[i]) {
				are++
			}
		}
		if are != number || len(list.Items) != number {
			return fmt.Errorf("%d of %d queues satisfy the condition, want %d", are, len(list.Items), number)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func jetStream(t *testing.T, s *natstest.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}
