package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
)

// waitUntilBlocked waits until the deletion is blocked for that reason, and checks the message.
func (e *queueEnv) waitUntilBlocked(name, reason, wantMessage string) {
	e.t.Helper()
	is := e.waitForCondition(name, v1alpha1.ConditionBlocked, metav1.ConditionTrue, reason)
	if !strings.Contains(is.Message, wantMessage) {
		e.t.Errorf("the message is %q, want %q", is.Message, wantMessage)
	}
}

func (e *queueEnv) hasStream(name string) bool {
	e.t.Helper()
	return slices.Contains(e.streamNames(), name)
}

func TestDrainRejectsMessagesAndWaitsUntilTheQueueIsEmpty(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "deletionPolicy: Drain")
	e.waitUntilReady("mail")
	e.sendMessages("mail", 2)
	e.deleteQueue("mail")
	e.waitUntilBlocked("mail", v1alpha1.ReasonNotEmpty, "2 messages left")
	e.waitForEvent("mail", v1alpha1.EventDeletionBlocked)
	if _, err := e.connectJetStream().Publish(t.Context(), "yardmaster."+e.brokerName("mail")+".ready.default", nil); err == nil {
		t.Error("the queue accepts a new message")
	}
	e.processMessages("mail", 2)
	e.waitUntilDeleted("mail")
	if e.hasStream(e.streamName("mail")) || e.hasStream(e.streamName("mail")+"_dead") {
		t.Errorf("the server still has the streams %q", e.streamNames())
	}
}

// Operators that were killed while they deleted a queue left its stream of messages: without that of the dead letters,
// the next operator took the queue for deleted.
func TestAnInterruptedDeletionContinues(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "deletionPolicy: Drain")
	e.waitUntilReady("mail")
	e.sendMessages("mail", 2)
	e.deleteQueue("mail")
	e.waitUntilBlocked("mail", v1alpha1.ReasonNotEmpty, "2 messages left")
	for _, part := range []string{"KV_" + e.streamName("mail"), e.streamName("mail") + "_dead"} {
		if err := e.connectJetStream().DeleteStream(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	e.processMessages("mail", 1)
	e.waitForStats("mail", 1, 0)
	e.waitUntilBlocked("mail", v1alpha1.ReasonNotEmpty, "1 message left")
	e.processMessages("mail", 1)
	e.waitUntilDeleted("mail")
	if got := e.streamNames(); len(got) > 0 {
		t.Errorf("the server still has the streams %q", got)
	}
}

func TestDeadLettersBlockDeletion(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	for _, policy := range []string{"Retain", "Drain", "Purge"} {
		name := strings.ToLower(policy)
		e.createQueue(name, "deletionPolicy: "+policy)
		e.waitUntilReady(name)
		e.addDeadLetters(name, 1)
		e.deleteQueue(name)
		e.waitUntilBlocked(name, v1alpha1.ReasonDeadLetters, "1 dead letter and deadLetter.onDelete is Block")
		if !e.hasStream(e.streamName(name) + "_dead") {
			t.Errorf("%s: the dead letters were deleted", policy)
		}
		e.patchQueue(name, `{"spec":{"deadLetter":{"onDelete":"Purge"}}}`)
		e.waitUntilDeleted(name)
	}
	retained := e.streamName("retain")
	if got := e.streamNames(); !slices.Equal(got, []string{"KV_" + retained, retained, retained + "_dead", retained + "_delayed"}) {
		t.Errorf("the server has the streams %q", got)
	}
}

func TestDeletionMovesDeadLettersToAnotherQueue(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "deletionPolicy: Purge, deadLetter: {onDelete: Move, moveToRef: {name: archive}}")
	e.waitUntilReady("mail")
	e.addDeadLetters("mail", 450) // more than one batch
	e.deleteQueue("mail")
	e.waitUntilBlocked("mail", v1alpha1.ReasonDeadLetters, `Queue "archive" not found`)
	e.createQueue("archive", "")
	e.waitUntilDeleted("mail")
	stream, err := e.connectJetStream().Stream(t.Context(), e.streamName("archive")+"_dead")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 450 {
		t.Errorf("%d dead letters were moved", got)
	}
}

func TestWorkerPoolsBlockDeletionOfTheirQueue(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "deletionPolicy: Purge")
	e.waitUntilReady("mail")
	pool := newManifest(t, "WorkerPool", "readers", `{queues: [{name: mail}], image: "busybox:1.37", replicas: 0}`)
	pool.SetNamespace(e.ns)
	if err := cluster.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	e.deleteQueue("mail")
	e.waitUntilBlocked("mail", v1alpha1.ReasonStillReferenced, "readers")
	if !e.hasStream(e.streamName("mail")) {
		t.Error("the queue was deleted on the broker")
	}
	if err := cluster.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	e.waitUntilDeleted("mail")
}

func TestAnUnreachableBrokerBlocksDeletionUntilTheQueueIsAbandoned(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "deletionPolicy: Purge")
	e.waitUntilReady("mail")
	e.Stop()
	e.deleteQueue("mail")
	e.waitUntilBlocked("mail", v1alpha1.ReasonConnectionFailed, `annotation yardmaster.dev/abandon: "true"`)
	e.patchQueue("mail", `{"metadata":{"annotations":{"yardmaster.dev/abandon":"true"}}}`)
	e.waitUntilDeleted("mail")
	e.waitForEvent("mail", v1alpha1.EventQueueDeleted)

	// On the broker the removed Queue is still the owner. The next Queue of the namespace takes over.
	e.Restart()
	e.createQueue("mail", "")
	e.waitUntilReady("mail")
}

// Nothing that could unblock a deletion can be created in a terminating namespace.
func TestATerminatingNamespaceLeavesBlockedQueuesOnTheBroker(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	for name, spec := range map[string]string{
		"letters":    "deletionPolicy: Purge",
		"unmovable":  "deletionPolicy: Purge, deadLetter: {onDelete: Move, moveToRef: {name: nowhere}}",
		"unfinished": "deletionPolicy: Drain",
		"purged":     "deletionPolicy: Purge",
		"retained":   "",
	} {
		e.createQueue(name, spec)
		e.waitUntilReady(name)
		e.sendMessages(name, 1)
	}
	e.addDeadLetters("letters", 1)
	e.addDeadLetters("unmovable", 1)
	e.deleteNamespace()
	for name, left := range map[string]bool{"letters": true, "unmovable": true, "unfinished": true, "purged": false, "retained": true} {
		e.waitUntilDeleted(name)
		if e.hasStream(e.streamName(name)) != left {
			t.Errorf("%s: left on the broker: %t", name, !left)
		}
	}
}

// deleteNamespace deletes the namespace of the test and waits until it no longer exists.
func (e *queueEnv) deleteNamespace() {
	e.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}
	if err := cluster.Delete(e.t.Context(), ns); err != nil {
		e.t.Fatal(err)
	}
	poll.Until(e.t, "the deletion of the namespace", func() bool {
		return apierrors.IsNotFound(cluster.Get(e.t.Context(), client.ObjectKeyFromObject(ns), ns))
	})
}
