package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
	"github.com/yardmaster/yardmaster/test/require"
)

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
