package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// queueEnv is a namespace with a NATS server whose URL is in the Secret "broker".
type queueEnv struct {
	t  *testing.T
	ns string
	*natstest.Server
}

func newQueueEnv(t *testing.T) *queueEnv {
	t.Helper()
	e := &queueEnv{t: t, ns: namespace(t), Server: natstest.Start(t)}
	e.createSecret("broker", "url", "nats://"+e.Address())
	t.Cleanup(e.abandonQueues)
	return e
}

// abandonQueues keeps Queues from blocking the deletion of the namespace after its NATS server stops.
func (e *queueEnv) abandonQueues() {
	var list v1alpha1.QueueList
	require.NoError(e.t, cluster.List(background, &list, client.InNamespace(e.ns)))
	for i := range list.Items {
		patch := client.RawPatch(mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, queue.AnnotationAbandon))
		require.NoError(e.t, client.IgnoreNotFound(cluster.Patch(background, &list.Items[i], patch)))
	}
}

func (e *queueEnv) createSecret(name string, data ...string) *corev1.Secret {
	e.t.Helper()
	s := testbuilder.BrokerSecret(e.ns, name, data...)
	mustCreate(e.t, s)
	return s
}

// natsBrokerField is the broker of the Queues of most tests.
const natsBrokerField = "broker: {engine: NATS, urlSecretRef: {name: broker}}"

// createQueue creates a Queue on the NATS server, with more fields in its spec.
func (e *queueEnv) createQueue(name, spec string) {
	e.t.Helper()
	e.createQueueOn(natsBrokerField, name, spec)
}

func (e *queueEnv) createQueueOn(broker, name, spec string) {
	e.t.Helper()
	if spec != "" {
		spec = ", " + spec
	}
	mustCreate(e.t, newManifest(e.t, "Queue", e.ns, name, "{"+broker+spec+"}"))
}

func (e *queueEnv) getQueue(name string) *v1alpha1.Queue {
	e.t.Helper()
	q := &v1alpha1.Queue{}
	mustGet(e.t, client.ObjectKey{Namespace: e.ns, Name: name}, q)
	return q
}

func (e *queueEnv) patchQueue(name, patch string) {
	e.t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	mustPatch(e.t, q, client.RawPatch(mergePatch, []byte(patch)))
}

func (e *queueEnv) deleteQueue(name string) {
	e.t.Helper()
	mustDelete(e.t, e.getQueue(name))
}

func (e *queueEnv) waitForCondition(name, condition string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	e.t.Helper()
	var is *metav1.Condition
	if err := poll.UntilNil(e.t.Context(), func() error {
		q := e.getQueue(name)
		is = meta.FindStatusCondition(q.Status.Conditions, condition)
		if is == nil || is.Status != status || is.Reason != reason || is.ObservedGeneration != q.Generation {
			return fmt.Errorf("the condition is %+v", is)
		}
		return nil
	}); err != nil {
		e.t.Fatalf("waiting for %s of %s to be %s, %s: %v", condition, name, status, reason, err)
	}
	return is
}

func (e *queueEnv) waitUntilReady(name string) {
	e.t.Helper()
	e.waitForCondition(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func (e *queueEnv) waitUntilDeleted(name string) {
	e.t.Helper()
	poll.Until(e.t, "the deletion of "+name, func() bool {
		err := cluster.Get(e.t.Context(), client.ObjectKey{Namespace: e.ns, Name: name}, &v1alpha1.Queue{})
		return client.IgnoreNotFound(err) == nil && err != nil
	})
}

// connectJetStream connects to the server directly, not through the operator.
func (e *queueEnv) connectJetStream() jetstream.JetStream {
	e.t.Helper()
	nc, err := nats.Connect("nats://" + e.Address())
	require.NoError(e.t, err)
	e.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(e.t, err)
	return js
}

// brokerName returns the name of a Queue on the broker: that in its status, or the default for one
// that does not exist any more.
func (e *queueEnv) brokerName(queue string) string {
	e.t.Helper()
	q := &v1alpha1.Queue{}
	err := cluster.Get(e.t.Context(), client.ObjectKey{Namespace: e.ns, Name: queue}, q)
	if client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}
	if q.Status.Name != "" {
		return q.Status.Name
	}
	system := &corev1.Namespace{}
	mustGet(e.t, client.ObjectKey{Name: metav1.NamespaceSystem}, system)
	return broker.ScopedQueueName(e.ns, queue, broker.ClusterID(string(system.UID)))
}

func (e *queueEnv) streamName(queue string) string { return "yardmaster_" + e.brokerName(queue) }

func (e *queueEnv) streamNames() []string {
	e.t.Helper()
	var all []string
	names := e.connectJetStream().StreamNames(e.t.Context())
	for name := range names.Name() {
		all = append(all, name)
	}
	if names.Err() != nil {
		e.t.Fatal(names.Err())
	}
	slices.Sort(all)
	return all
}

func (e *queueEnv) sendMessages(queue string, number int) {
	e.t.Helper()
	js := e.connectJetStream()
	subject := "yardmaster." + e.brokerName(queue) + ".ready.default"
	for range number {
		if _, err := js.Publish(e.t.Context(), subject, []byte("work")); err != nil {
			e.t.Fatal(err)
		}
	}
}

// findEvent returns the event of an object with that reason; nil if none exists.
func findEvent(t *testing.T, namespace, name, reason string) *eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(namespace)))
	i := slices.IndexFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == name && e.Reason == reason })
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

func (e *queueEnv) waitForEvent(name, reason string) {
	e.t.Helper()
	poll.Until(e.t, "the event "+reason+" of "+name, func() bool { return findEvent(e.t, e.ns, name, reason) != nil })
}

// examples returns the paths of the examples of these patterns, each of which has some.
func examples(t *testing.T, patterns ...string) (paths []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(repositoryRoot, "examples", pattern))
		require.True(t, err == nil && len(files) > 0, "%d examples %s: %v", len(files), pattern, err)
		paths = append(paths, files...)
	}
	return paths
}

// The examples are applied with strict field validation.
func TestExamplesOfQueuesAndPoolsAreValid(t *testing.T) {
	t.Parallel()
	for _, path := range examples(t, "queue/*.yaml", "workerpool/*.yaml", "orders/*.yaml", "thumbnails/*.yaml") {
		t.Run(filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)), func(t *testing.T) {
			ns := namespace(t)
			for _, manifest := range readManifests(t, path) {
				manifest.SetNamespace(ns)
				require.NoError(t, apply(t.Context(), strictClient(t, &warningList{}), manifest, false))
			}
		})
	}
}
