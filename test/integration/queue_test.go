package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
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
	require.NoError(e.t, cluster.List(context.Background(), &list, client.InNamespace(e.ns)))
	for i := range list.Items {
		patch := client.RawPatch(mergePatch, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, queue.AnnotationAbandon))
		require.NoError(e.t, client.IgnoreNotFound(cluster.Patch(context.Background(), &list.Items[i], patch)))
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
	names := e.JetStream().StreamNames(e.t.Context())
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
	js := e.JetStream()
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

// newNeighbor returns another namespace whose Queues use the same NATS server.
func (e *queueEnv) newNeighbor() *queueEnv {
	e.t.Helper()
	other := &queueEnv{t: e.t, ns: namespace(e.t), Server: e.Server}
	other.createSecret("broker", "url", "nats://"+e.Address())
	e.t.Cleanup(other.abandonQueues)
	return other
}

func (e *queueEnv) waitForConflict(name string) string {
	e.t.Helper()
	return e.waitForCondition(name, v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue).Message
}

func (e *queueEnv) waitForReadyMessages(name string, want int64) {
	e.t.Helper()
	poll.Until(e.t, fmt.Sprintf("%d messages in the status", want), func() bool {
		ready := e.getQueue(name).Status.Backlog
		return ready != nil && *ready == want
	})
}

// visibleText is everything that someone with read access to the namespace can see about its Queues.
func (e *queueEnv) visibleText() string {
	e.t.Helper()
	var queues v1alpha1.QueueList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&queues, &events} {
		require.NoError(e.t, cluster.List(e.t.Context(), list, client.InNamespace(e.ns)))
	}
	return fmt.Sprintf("%+v %+v", queues.Items, events.Items)
}

func TestAQueueCannotTakeOverTheQueueOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	victim := newQueueEnv(t)
	attacker := victim.newNeighbor()
	// A Queue that is older than the victim's, on another broker until the victim has a queue.
	attacker.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: missing}}", "older", "name: shared, deletionPolicy: Purge")
	attacker.waitForCondition("older", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	victim.createQueue("mail", "name: shared")
	victim.waitUntilReady("mail")
	victim.sendMessages("mail", 2)
	owner := victim.getQueue("mail")

	attacker.patchQueue("older", `{"spec":{"broker":{"urlSecretRef":{"name":"broker"}}}}`)
	attacker.waitForConflict("older")
	attacker.createQueue("mail", "name: shared, deletionPolicy: Purge, deadLetter: {onDelete: Purge}")
	attacker.waitForConflict("mail")
	for _, name := range []string{"older", "mail"} {
		attacker.patchQueue(name, fmt.Sprintf(`{"metadata":{"annotations":{"yardmaster.dev/supersedes":%q}}}`, owner.UID))
		attacker.waitForConflict(name)
		attacker.waitForEvent(name, v1alpha1.ReasonOwnedByOtherQueue)
	}
	for _, name := range []string{"older", "mail"} {
		attacker.patchQueue(name, `{"metadata":{"annotations":{"yardmaster.dev/supersedes":null}}}`)
	}
	if text := attacker.visibleText(); strings.Contains(text, victim.ns) || strings.Contains(text, string(owner.UID)) {
		t.Errorf("the attacker sees the victim's namespace or UID: %s", text)
	}
	for _, name := range []string{"older", "mail"} {
		attacker.deleteQueue(name)
		attacker.waitUntilDeleted(name)
	}
	victim.waitUntilReady("mail")
	victim.waitForReadyMessages("mail", 2)
}

// Versions before v0.2 named a queue on the broker as its Queue.
func TestAQueueKeepsTheNameThatItsStatusRecords(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: missing}}", "mail", "")
	e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	q, named := e.getQueue("mail"), client.RawPatch(mergePatch, []byte(`{"spec":{"name":"mail"}}`))
	if err := cluster.Patch(t.Context(), q.DeepCopy(), named); !apierrors.IsInvalid(err) {
		t.Errorf("a name that is not in the status: %v", err)
	}
	require.NoError(t, cluster.Status().Patch(t.Context(), q, client.RawPatch(mergePatch, []byte(`{"status":{"name":"mail"}}`))))
	e.patchQueue("mail", `{"spec":{"broker":{"urlSecretRef":{"name":"broker"}}}}`)
	e.waitUntilReady("mail")
	if !slices.Contains(e.streamNames(), "yardmaster_mail") || e.getQueue("mail").Status.Name != "mail" {
		t.Errorf("the server has the streams %q", e.streamNames())
	}
	e.patchQueue("mail", `{"spec":{"name":"mail"}}`) // what the status records can be made explicit
}

// A Queue that was deleted before it owned anything must not touch the queues of other programs.
func TestADeletedQueueLeavesTheQueueOfAnotherProgramAlone(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	s := redistest.Start(t)
	e.createSecret("redis", "url", s.URL())
	s.RunCLI("SADD", "asynq:queues", "billing")
	s.RunCLI("ZADD", "asynq:{billing}:archived", "1", "task")
	e.createQueueOn("broker: {engine: Asynq, urlSecretRef: {name: missing}}", "mail", "name: billing, deletionPolicy: Purge, deadLetter: {onDelete: Purge}")
	e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	e.patchQueue("mail", `{"metadata":{"finalizers":["yardmaster.dev/queue"]}}`)
	e.deleteQueue("mail")
	e.patchQueue("mail", `{"spec":{"broker":{"urlSecretRef":{"name":"redis"}}}}`)
	e.waitUntilDeleted("mail")
	require.Equal(t, "1", s.RunCLI("ZCARD", "asynq:{billing}:archived"))
}

// Those who may create a Queue may not be allowed to read Secrets.
func TestOnlySecretsWithTheLabelAreUsed(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	private := e.createSecret("private", "url", "nats://"+e.Address(), "password", "hunter2")
	setLabel := func(value string) {
		t.Helper()
		patch := client.RawPatch(mergePatch, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelBroker, value))
		mustPatch(t, private, patch)
	}
	setLabel("null")
	broker := "broker: {engine: NATS, urlSecretRef: {name: private}}"
	e.createQueueOn(broker, "mail", "")
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: private, key: password}}", "curious", "")
	w := &policyTestEnv{t, e.ns}
	w.createObject("Policy", "team", "", "{selector: {matchLabels: {team: none}}, defaults: {"+broker+"}}")
	want := fmt.Sprintf("kubectl label secret private -n %s yardmaster.dev/broker=true", e.ns)
	for kind, is := range map[string]*metav1.Condition{
		"Queue":         e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid),
		"another Queue": e.waitForCondition("curious", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid),
		"Policy":        w.waitForReady("team", metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid),
	} {
		require.True(t, strings.HasSuffix(is.Message, want), "%s: the message is %q", kind, is.Message)
	}
	setLabel(`"true"`)
	e.waitUntilReady("mail")
	require.True(t, !strings.Contains(e.visibleText(), "hunter2"), "the content of the Secret is visible")
}

// policyTestEnv is a namespace with Policies.
type policyTestEnv struct {
	t  *testing.T
	ns string
}

func (w *policyTestEnv) createObject(kind, name, labels, spec string) {
	w.t.Helper()
	object := newManifest(w.t, kind, w.ns, name, spec)
	object.SetLabels(map[string]string{"team": labels})
	mustCreate(w.t, object)
}

func (w *policyTestEnv) getPolicy(name string) *v1alpha1.Policy {
	w.t.Helper()
	p := &v1alpha1.Policy{}
	mustGet(w.t, client.ObjectKey{Namespace: w.ns, Name: name}, p)
	return p
}

func (w *policyTestEnv) waitForReady(name string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	w.t.Helper()
	var found *metav1.Condition
	poll.Until(w.t, name+" to be Ready="+string(status)+" "+reason, func() bool {
		p := w.getPolicy(name)
		found = meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return found != nil && found.Status == status && found.Reason == reason && found.ObservedGeneration == p.Generation
	})
	return found
}

// The API server rejects an event whose note has more than 1,024 bytes.
func TestAnEventWithALongMessageIsTruncated(t *testing.T) {
	t.Parallel()
	w := &policyTestEnv{t, namespaceWithoutWebhook(t)}
	w.createObject("Policy", "team", "", "{selector: {matchExpressions: [{key: team, operator: "+strings.Repeat("ä", 2500)+"}]}}")
	is := w.waitForReady("team", metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid)
	require.True(t, len(is.Message) >= 5000, "the message has only %d bytes", len(is.Message))
	poll.Until(t, "an event", func() bool { return findEvent(t, w.ns, "team", v1alpha1.ReasonSelectorInvalid) != nil })
	note := findEvent(t, w.ns, "team", v1alpha1.ReasonSelectorInvalid).Note
	if len(note) > 1024 || !strings.HasPrefix(note, "spec.selector: ") || !strings.HasSuffix(note, "ä…") {
		t.Errorf("the note has %d bytes: %q", len(note), note)
	}
}

func TestAPolicyDelaysWhatRunsUntilItsImagesAreAllowed(t *testing.T) {
	t.Parallel()
	w := &policyTestEnv{t, namespace(t)}
	w.createObject("Policy", "team", "", "{limits: {allowedImages: ['registry.example/good:*']}}")
	good := testbuilder.StepImage("registry.example/good:1")
	s := createSequenceIn(t, w.ns, testbuilder.SequentialJob("images", "").Step("a", good).Step("b", testbuilder.StepImage("registry.example/b:1")).Obj())
	session := createSessionIn(t, w.ns, "fix") // its image is runner:1
	s.waitUntil("the refusal", func(*v1alpha1.SequentialJob) bool {
		status, reason := s.readCondition(v1alpha1.ConditionBlocked)
		return status == metav1.ConditionTrue && reason == v1alpha1.ReasonImageNotAllowed
	})
	s.wantEvent(v1alpha1.EventPolicyViolated)
	session.waitForCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageNotAllowed)
	require.Equal(t, 0, len(s.listJobs())+len(session.listJobs()))
	both := `{"spec":{"limits":{"allowedImages":["registry.example/*", "runner:*"]}}}`
	mustPatch(t, w.getPolicy("team"), client.RawPatch(mergePatch, []byte(both)))
	s.succeedStep("a")
	s.succeedStep("b")
	session.waitForPhase(v1alpha1.SessionCreating)
}
