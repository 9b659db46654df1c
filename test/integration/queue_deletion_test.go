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
)

// waitUntilBlocked waits until something keeps a deleted Queue, and says what.
func (y *queueEnv) waitUntilBlocked(name, reason, says string) {
	y.t.Helper()
	is := y.waitForCondition(name, v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, reason)
	if !strings.Contains(is.Message, says) {
		y.t.Errorf("it says %q, want %q", is.Message, says)
	}
}

func (y *queueEnv) hasStream(name string) bool {
	y.t.Helper()
	return slices.Contains(y.streamNames(), name)
}

func TestRetainLeavesTheQueueForAnotherQueue(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	y.sendMessages("mail", 2)
	y.deleteQueue("mail")
	y.waitUntilDeleted("mail")
	y.waitForEvent("mail", v1alpha1.EventQueueDeleted)
	if !y.hasStream("yardmaster_mail") {
		t.Fatal("it was deleted on the broker")
	}
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	eventually(t, "its messages", func() bool {
		ready := y.getQueue("mail").Status.Ready
		return ready != nil && *ready == 2
	})
}

func TestDrainRejectsMessagesAndWaitsUntilTheQueueIsEmpty(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Drain")
	y.waitUntilReady("mail")
	y.sendMessages("mail", 2)
	y.deleteQueue("mail")
	y.waitUntilBlocked("mail", v1alpha1.ReasonNotEmpty, "2 messages left")
	y.waitForEvent("mail", v1alpha1.EventDeletionBlocked)
	if _, err := y.connectJetStream().Publish(t.Context(), "yardmaster.mail.ready.default", nil); err == nil {
		t.Error("a producer is not refused")
	}
	y.processMessages("mail", 2)
	y.waitUntilDeleted("mail")
	if y.hasStream("yardmaster_mail") || y.hasStream("yardmaster_mail_dead") {
		t.Errorf("the server still has %q", y.streamNames())
	}
}

func TestPurgeDeletesTheQueueAndItsMessages(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Purge")
	y.waitUntilReady("mail")
	y.sendMessages("mail", 2)
	y.deleteQueue("mail")
	y.waitUntilDeleted("mail")
	if got := y.streamNames(); len(got) > 0 {
		t.Errorf("the server still has %q", got)
	}
}

func TestDeadLettersBlockDeletion(t *testing.T) {
	y := newQueueEnv(t)
	for _, policy := range []string{"Retain", "Drain", "Purge"} {
		name := strings.ToLower(policy)
		y.createQueue(name, "deletionPolicy: "+policy)
		y.waitUntilReady(name)
		y.addDeadLetters(name, 1)
		y.deleteQueue(name)
		y.waitUntilBlocked(name, v1alpha1.ReasonDeadLetters, "1 dead letter and deadLetter.onDelete is Block")
		if !y.hasStream("yardmaster_" + name + "_dead") {
			t.Errorf("%s: the dead letters are gone", policy)
		}
		y.patchQueue(name, `{"spec":{"deadLetter":{"onDelete":"Purge"}}}`)
		y.waitUntilDeleted(name)
	}
	if got := y.streamNames(); !slices.Equal(got, []string{"KV_yardmaster_retain", "yardmaster_retain", "yardmaster_retain_dead"}) {
		t.Errorf("the server has %q", got)
	}
}

func TestDeletionMovesDeadLettersToAnotherQueue(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Purge, deadLetter: {onDelete: Move, moveTo: morgue}")
	y.waitUntilReady("mail")
	y.addDeadLetters("mail", 450) // more than are moved at once
	y.deleteQueue("mail")
	y.waitUntilBlocked("mail", v1alpha1.ReasonDeadLetters, `Queue "morgue" not found`)
	y.createQueue("morgue", "")
	y.waitUntilDeleted("mail")
	stream, err := y.connectJetStream().Stream(t.Context(), "yardmaster_morgue_dead")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 450 {
		t.Errorf("%d dead letters came", got)
	}
}

func TestWorkerPoolsBlockDeletionOfTheirQueue(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Purge")
	y.waitUntilReady("mail")
	pool := newManifest(t, "WorkerPool", "readers", `{queues: [{name: mail}], image: "busybox:1.37", replicas: 0}`)
	pool.SetNamespace(y.ns)
	if err := cluster.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	y.deleteQueue("mail")
	y.waitUntilBlocked("mail", v1alpha1.ReasonStillReferenced, "readers")
	if !y.hasStream("yardmaster_mail") {
		t.Error("it was deleted nevertheless")
	}
	if err := cluster.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	y.waitUntilDeleted("mail")
}

func TestAnUnreachableBrokerBlocksDeletionUntilTheQueueIsAbandoned(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Purge")
	y.waitUntilReady("mail")
	y.Stop()
	y.deleteQueue("mail")
	y.waitUntilBlocked("mail", v1alpha1.ReasonConnectionFailed, `annotation yardmaster.dev/abandon: "true"`)
	y.patchQueue("mail", `{"metadata":{"annotations":{"yardmaster.dev/abandon":"true"}}}`)
	y.waitUntilDeleted("mail")
	y.waitForEvent("mail", v1alpha1.EventQueueDeleted)

	// The broker knows nothing of that. Who comes next says that the queue is theirs now.
	y.Restart()
	y.createQueue("mail", "")
	is := y.waitForCondition("mail", v1alpha1.ConditionConflict, metav1.ConditionTrue, v1alpha1.ReasonOwnedByOtherQueue)
	_, rest, _ := strings.Cut(is.Message, "yardmaster.dev/supersedes: ")
	y.patchQueue("mail", `{"metadata":{"annotations":{"yardmaster.dev/supersedes":`+rest+`}}}`)
	y.waitUntilReady("mail")
}

func TestADeletedQueueStillDrainsAfterItsSecretIsDeleted(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Drain")
	y.waitUntilReady("mail")
	y.sendMessages("mail", 1)
	y.deleteQueue("mail")
	y.waitUntilBlocked("mail", v1alpha1.ReasonNotEmpty, "1 message left")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.ns, Name: "broker"}}
	if err := cluster.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	y.processMessages("mail", 1)
	y.waitUntilDeleted("mail")
}

// In a namespace that goes nothing can be made: what a deletion would wait for does not come.
func TestATerminatingNamespaceLeavesBlockedQueuesOnTheBroker(t *testing.T) {
	y := newQueueEnv(t)
	for name, spec := range map[string]string{
		"letters":  "deletionPolicy: Purge",
		"orphans":  "deletionPolicy: Purge, deadLetter: {onDelete: Move, moveTo: nowhere}",
		"undone":   "deletionPolicy: Drain",
		"purged":   "deletionPolicy: Purge",
		"retained": "",
	} {
		y.createQueue(name, spec)
		y.waitUntilReady(name)
		y.sendMessages(name, 1)
	}
	y.addDeadLetters("letters", 1)
	y.addDeadLetters("orphans", 1)
	y.deleteNamespace()
	for name, left := range map[string]bool{"letters": true, "orphans": true, "undone": true, "purged": false, "retained": true} {
		y.waitUntilDeleted(name)
		if y.hasStream("yardmaster_"+name) != left {
			t.Errorf("%s: it is left on the broker: %t", name, !left)
		}
	}
}

func TestATerminatingNamespaceDoesNotWaitForAnUnreachableBroker(t *testing.T) {
	y := newQueueEnv(t)
	y.createQueue("mail", "deletionPolicy: Purge")
	y.waitUntilReady("mail")
	y.Stop()
	y.waitForCondition("mail", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
	y.deleteNamespace()
	y.waitUntilDeleted("mail")
}

// deleteNamespace deletes that of the test, and waits until it is gone.
func (y *queueEnv) deleteNamespace() {
	y.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: y.ns}}
	if err := cluster.Delete(y.t.Context(), ns); err != nil {
		y.t.Fatal(err)
	}
	eventually(y.t, "the namespace to be gone", func() bool {
		return apierrors.IsNotFound(cluster.Get(y.t.Context(), client.ObjectKeyFromObject(ns), ns))
	})
}
