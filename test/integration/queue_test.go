package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// queueEnv is a namespace with a real NATS server whose URL is in the Secret "broker".
type queueEnv struct {
	t  *testing.T
	ns string
	*natstest.Server
}

func newQueueEnv(t *testing.T, changes ...func(*server.Options)) *queueEnv {
	t.Helper()
	y := &queueEnv{t: t, ns: namespace(t), Server: natstest.Start(t, changes...)}
	y.createSecret("broker", "url", "nats://"+y.Address())
	t.Cleanup(y.abandonQueues)
	return y
}

// abandonQueues lets the test's namespace go, whose broker goes before it.
func (y *queueEnv) abandonQueues() {
	var list v1alpha1.QueueList
	if err := cluster.List(background, &list, client.InNamespace(y.ns)); err != nil {
		y.t.Error(err)
	}
	for i := range list.Items {
		patch := client.RawPatch(mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, queue.AnnotationAbandon))
		if err := client.IgnoreNotFound(cluster.Patch(background, &list.Items[i], patch)); err != nil {
			y.t.Error(err)
		}
	}
}

func (y *queueEnv) createSecret(name string, data ...string) *corev1.Secret {
	y.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.ns, Name: name}, StringData: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		s.StringData[data[i]] = data[i+1]
	}
	if err := cluster.Create(y.t.Context(), s); err != nil {
		y.t.Fatal(err)
	}
	return s
}

// natsBrokerField is what Queues name.
const natsBrokerField = "broker: {engine: NATS, urlSecretRef: {name: broker}}"

// createQueue makes a Queue on the yard's broker, with more in its spec.
func (y *queueEnv) createQueue(name, spec string) {
	y.t.Helper()
	y.createQueueOn(natsBrokerField, name, spec)
}

func (y *queueEnv) createQueueOn(broker, name, spec string) {
	y.t.Helper()
	if spec != "" {
		spec = ", " + spec
	}
	q := newManifest(y.t, "Queue", name, "{"+broker+spec+"}")
	q.SetNamespace(y.ns)
	if err := cluster.Create(y.t.Context(), q); err != nil {
		y.t.Fatal(err)
	}
}

func (y *queueEnv) getQueue(name string) *v1alpha1.Queue {
	y.t.Helper()
	q := &v1alpha1.Queue{}
	if err := cluster.Get(y.t.Context(), client.ObjectKey{Namespace: y.ns, Name: name}, q); err != nil {
		y.t.Fatal(err)
	}
	return q
}

// patchQueue changes a Queue by a merge patch.
func (y *queueEnv) patchQueue(name, patch string) {
	y.t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: y.ns, Name: name}}
	if err := cluster.Patch(y.t.Context(), q, client.RawPatch(mergePatch, []byte(patch))); err != nil {
		y.t.Fatal(err)
	}
}

func (y *queueEnv) deleteQueue(name string) {
	y.t.Helper()
	if err := cluster.Delete(y.t.Context(), y.getQueue(name)); err != nil {
		y.t.Fatal(err)
	}
}

// waitForCondition waits until a condition is so, and returns it.
func (y *queueEnv) waitForCondition(name, condition string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	y.t.Helper()
	var is *metav1.Condition
	err := wait.PollUntilContextTimeout(y.t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		q := y.getQueue(name)
		is = meta.FindStatusCondition(q.Status.Conditions, condition)
		return is != nil && is.Status == status && is.Reason == reason && is.ObservedGeneration == q.Generation, nil
	})
	if err != nil {
		y.t.Fatalf("waiting for %s of %s to be %s, %s: it is %+v", condition, name, status, reason, is)
	}
	return is
}

func (y *queueEnv) waitUntilReady(name string) {
	y.t.Helper()
	y.waitForCondition(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func (y *queueEnv) waitUntilDeleted(name string) {
	y.t.Helper()
	eventually(y.t, name+" to be gone", func() bool {
		err := cluster.Get(y.t.Context(), client.ObjectKey{Namespace: y.ns, Name: name}, &v1alpha1.Queue{})
		return client.IgnoreNotFound(err) == nil && err != nil
	})
}

// connectJetStream is who looks at the server behind the operator's back.
func (y *queueEnv) connectJetStream() jetstream.JetStream {
	y.t.Helper()
	nc, err := nats.Connect("nats://" + y.Address())
	if err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		y.t.Fatal(err)
	}
	return js
}

func (y *queueEnv) streamNames() []string {
	y.t.Helper()
	var all []string
	names := y.connectJetStream().StreamNames(y.t.Context())
	for name := range names.Name() {
		all = append(all, name)
	}
	if names.Err() != nil {
		y.t.Fatal(names.Err())
	}
	slices.Sort(all)
	return all
}

func (y *queueEnv) consumerInfo(queue string) *jetstream.ConsumerInfo {
	y.t.Helper()
	c, err := y.connectJetStream().Consumer(y.t.Context(), "yardmaster_"+queue, "default")
	if err != nil {
		y.t.Fatal(err)
	}
	return c.CachedInfo()
}

func (y *queueEnv) sendMessages(queue string, number int) {
	y.t.Helper()
	js := y.connectJetStream()
	for range number {
		if _, err := js.Publish(y.t.Context(), "yardmaster."+queue+".ready.default", []byte("work")); err != nil {
			y.t.Fatal(err)
		}
	}
}

// addDeadLetters makes dead letters, as workers do.
func (y *queueEnv) addDeadLetters(queue string, number int) {
	y.t.Helper()
	js := y.connectJetStream()
	for range number {
		if _, err := js.Publish(y.t.Context(), "yardmaster."+queue+".dead.default", []byte("poison")); err != nil {
			y.t.Fatal(err)
		}
	}
}

// processMessages does the work of a queue.
func (y *queueEnv) processMessages(queue string, number int) {
	y.t.Helper()
	c, err := y.connectJetStream().Consumer(y.t.Context(), "yardmaster_"+queue, "default")
	if err != nil {
		y.t.Fatal(err)
	}
	messages, err := c.Fetch(number)
	if err != nil {
		y.t.Fatal(err)
	}
	for message := range messages.Messages() {
		if err := message.DoubleAck(y.t.Context()); err != nil {
			y.t.Error(err)
		}
	}
}

// hasEvent tells whether one of that reason was told of a Queue.
func (y *queueEnv) hasEvent(name, reason string) bool {
	y.t.Helper()
	var list eventsv1.EventList
	if err := cluster.List(y.t.Context(), &list, client.InNamespace(y.ns)); err != nil {
		y.t.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == name && e.Reason == reason })
}

func (y *queueEnv) waitForEvent(name, reason string) {
	y.t.Helper()
	eventually(y.t, "the event "+reason+" of "+name, func() bool { return y.hasEvent(name, reason) })
}

func TestAQueueIsCreatedAndUpdatedOnItsBroker(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "maxInFlight: 5, rateLimit: {limit: 10}")
	y.waitUntilReady("mail")
	y.waitForEvent("mail", v1alpha1.EventQueueCreated)
	if got := y.streamNames(); !slices.Contains(got, "yardmaster_mail") || !slices.Contains(got, "yardmaster_mail_dead") {
		t.Errorf("the server has %q", got)
	}
	q := y.getQueue("mail")
	if q.Status.Engine != v1alpha1.EngineNATS || q.Status.Name != "mail" || q.Status.Effective.RateLimit.Limit != 10 {
		t.Errorf("the status is %+v", q.Status)
	}
	if by := q.Status.Enforcement["maxInFlight"]; by != v1alpha1.EnforcedByBroker {
		t.Errorf("maxInFlight is enforced by %q", by)
	}

	y.patchQueue("mail", `{"spec":{"maxInFlight":9,"lease":"45s","paused":true}}`)
	y.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPaused)
	is := y.consumerInfo("mail")
	if is.Config.MaxAckPending != 9 || is.Config.AckWait != 45*time.Second || !is.Paused {
		t.Errorf("the consumer is %+v, paused: %t", is.Config, is.Paused)
	}
	y.patchQueue("mail", `{"spec":{"paused":false}}`)
	y.waitUntilReady("mail")
	if y.consumerInfo("mail").Paused {
		t.Error("it is still paused")
	}
}

func TestTheStatusShowsTheStatsOfTheQueue(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	y.sendMessages("mail", 3)
	eventually(t, "3 ready messages", func() bool {
		s := y.getQueue("mail").Status
		return s.Ready != nil && *s.Ready == 3 && s.OldestTime != nil
	})
	y.processMessages("mail", 3)
	eventually(t, "none, and waits", func() bool {
		s := y.getQueue("mail").Status
		return *s.Ready == 0 && s.OldestTime == nil && s.Wait != nil && s.ArrivalRate.AsApproximateFloat64() > 0
	})
}

func TestAnIdleQueueCausesNoWrites(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	before := y.getQueue("mail")
	eventually(t, "it to settle", func() bool {
		now := y.getQueue("mail")
		settled := now.ResourceVersion == before.ResourceVersion && now.Status.ArrivalRate != nil
		before = now
		return settled
	})
	// Past several sweeps, which the suite has every two seconds.
	time.Sleep(7 * time.Second)
	if now := y.getQueue("mail"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("it was written: %+v, then %+v", before.Status, now.Status)
	}
}

func TestDriftIsCorrected(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "maxInFlight: 5")
	y.waitUntilReady("mail")
	changeMaxAckPending(t, y)
	eventually(t, "5 in flight", func() bool { return y.consumerInfo("mail").Config.MaxAckPending == 5 })
	y.waitForEvent("mail", v1alpha1.EventDriftCorrected)
}

func TestDriftWithWarnIsOnlyReported(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "maxInFlight: 5, drift: Warn")
	y.waitUntilReady("mail")
	changeMaxAckPending(t, y)
	is := y.waitForCondition("mail", v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonDrifted)
	if want := "max_ack_pending is 77, should be 5"; !strings.Contains(is.Message, want) {
		t.Errorf("it says %q, want %q", is.Message, want)
	}
	y.waitForEvent("mail", v1alpha1.EventDriftFound)
	if got := y.consumerInfo("mail").Config.MaxAckPending; got != 77 {
		t.Errorf("it was changed back to %d", got)
	}
	y.patchQueue("mail", `{"spec":{"drift":"Correct"}}`)
	y.waitUntilReady("mail")
}

// changeMaxAckPending changes a queue behind the operator's back.
func changeMaxAckPending(t *testing.T, y *queueEnv) {
	t.Helper()
	config := y.consumerInfo("mail").Config
	config.MaxAckPending = 77
	if _, err := y.connectJetStream().UpdateConsumer(t.Context(), "yardmaster_mail", config); err != nil {
		t.Fatal(err)
	}
}

func TestALostStreamIsCreatedAgain(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	if err := y.connectJetStream().DeleteStream(t.Context(), "yardmaster_mail"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream", func() bool { return slices.Contains(y.streamNames(), "yardmaster_mail") })
}

func TestDeadLettersPresentFollowsTheAlertThreshold(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deadLetter: {alertThreshold: 2}")
	y.waitUntilReady("mail")
	y.addDeadLetters("mail", 1)
	y.sendMessages("mail", 1) // which has the queue looked at
	eventually(t, "1 dead letter", func() bool { return *y.getQueue("mail").Status.Dead == 1 })
	y.waitForCondition("mail", v1alpha1.ConditionDeadLettersPresent, metav1.ConditionFalse, v1alpha1.ReasonNoDeadLetters)
	y.addDeadLetters("mail", 1)
	y.waitForCondition("mail", v1alpha1.ConditionDeadLettersPresent, metav1.ConditionTrue, v1alpha1.ReasonDeadLetters)
	y.waitForEvent("mail", v1alpha1.EventDeadLetters)
}

func TestDeadLettersAreRequeuedOrPurgedOnRequest(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	asked := func() bool { return y.getQueue("mail").Annotations[queue.AnnotationDeadLetters] != "" }
	y.addDeadLetters("mail", 3)
	y.patchQueue("mail", `{"metadata":{"annotations":{"yardmaster.dev/dead-letters":"Requeue"}}}`)
	eventually(t, "the annotation to be gone", func() bool { return !asked() })
	if s := y.getQueue("mail").Status; *s.Dead != 0 || *s.Ready != 3 {
		t.Errorf("%d dead, %d ready", *s.Dead, *s.Ready)
	}
	y.waitForEvent("mail", "DeadLettersRequeued")
	y.addDeadLetters("mail", 3)
	y.patchQueue("mail", `{"metadata":{"annotations":{"yardmaster.dev/dead-letters":"Purge"}}}`)
	eventually(t, "the annotation to be gone", func() bool { return !asked() })
	if s := y.getQueue("mail").Status; *s.Dead != 0 || *s.Ready != 3 {
		t.Errorf("%d dead, %d ready", *s.Dead, *s.Ready)
	}
	y.waitForEvent("mail", "DeadLettersPurged")
}

// The examples are taken as they are, field by field.
func TestQueueExamplesAreValid(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "examples", "queue", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d examples: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			ns := namespace(t)
			for text := range bytes.SplitSeq(raw, []byte("\n---\n")) {
				manifest, err := decode(text)
				if err != nil {
					t.Fatal(err)
				}
				manifest.SetNamespace(ns)
				if err := apply(t.Context(), strictClient(t, &warningList{}), manifest, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
