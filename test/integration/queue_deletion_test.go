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

// blocked waits until something keeps a deleted Queue, and says what.
func (y *yard) blocked(name, reason, says string) {
	y.t.Helper()
	is := y.becomes(name, v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, reason)
	if !strings.Contains(is.Message, says) {
		y.t.Errorf("it says %q, want %q", is.Message, says)
	}
}

func (y *yard) hasStream(name string) bool {
	y.t.Helper()
	return slices.Contains(y.streams(), name)
}

func TestRetainLeavesTheQueueForTheNext(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "")
	y.ready("mail")
	y.send("mail", 2)
	y.delete("mail")
	y.gone("mail")
	y.told("mail", v1alpha1.EventQueueDeleted)
	if !y.hasStream("yardmaster_mail") {
		t.Fatal("it was deleted on the broker")
	}
	y.declare("mail", "")
	y.ready("mail")
	eventually(t, "its messages", func() bool {
		ready := y.queue("mail").Status.Ready
		return ready != nil && *ready == 2
	})
}

func TestDrainRefusesProducersAndWaitsUntilItIsEmpty(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Drain")
	y.ready("mail")
	y.send("mail", 2)
	y.delete("mail")
	y.blocked("mail", v1alpha1.ReasonNotEmpty, "2 messages left")
	y.told("mail", v1alpha1.EventDeletionBlocked)
	if _, err := y.jetstream().Publish(t.Context(), "yardmaster.mail.ready.default", nil); err == nil {
		t.Error("a producer is not refused")
	}
	y.take("mail", 2)
	y.gone("mail")
	if y.hasStream("yardmaster_mail") || y.hasStream("yardmaster_mail_dead") {
		t.Errorf("the server still has %q", y.streams())
	}
}

func TestPurgeDeletesTheQueueWithItsMessages(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Purge")
	y.ready("mail")
	y.send("mail", 2)
	y.delete("mail")
	y.gone("mail")
	if got := y.streams(); len(got) > 0 {
		t.Errorf("the server still has %q", got)
	}
}

func TestDeadLettersBlockADeletionUntilTheyAreGone(t *testing.T) {
	y := newYard(t)
	for _, policy := range []string{"Retain", "Drain", "Purge"} {
		name := strings.ToLower(policy)
		y.declare(name, "deletionPolicy: "+policy)
		y.ready(name)
		y.bury(name, 1)
		y.delete(name)
		y.blocked(name, v1alpha1.ReasonDeadLetters, "1 dead letter and deadLetter.onDelete is Block")
		if !y.hasStream("yardmaster_" + name + "_dead") {
			t.Errorf("%s: the dead letters are gone", policy)
		}
		y.patch(name, `{"spec":{"deadLetter":{"onDelete":"Purge"}}}`)
		y.gone(name)
	}
	if got := y.streams(); !slices.Equal(got, []string{"KV_yardmaster_retain", "yardmaster_retain", "yardmaster_retain_dead"}) {
		t.Errorf("the server has %q", got)
	}
}

func TestDeadLettersAreMovedToAnotherQueue(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Purge, deadLetter: {onDelete: Move, moveTo: morgue}")
	y.ready("mail")
	y.bury("mail", 450) // more than are moved at once
	y.delete("mail")
	y.blocked("mail", v1alpha1.ReasonDeadLetters, `Queue "morgue" not found`)
	y.declare("morgue", "")
	y.gone("mail")
	stream, err := y.jetstream().Stream(t.Context(), "yardmaster_morgue_dead")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 450 {
		t.Errorf("%d dead letters came", got)
	}
}

func TestWorkerPoolsKeepTheQueueTheyName(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Purge")
	y.ready("mail")
	pool := given(t, "WorkerPool", "readers", `{queues: [{name: mail}], image: "busybox:1.37", replicas: 0}`)
	pool.SetNamespace(y.ns)
	if err := cluster.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	y.delete("mail")
	y.blocked("mail", v1alpha1.ReasonStillReferenced, "readers")
	if !y.hasStream("yardmaster_mail") {
		t.Error("it was deleted nevertheless")
	}
	if err := cluster.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	y.gone("mail")
}

func TestADeadBrokerKeepsAQueueUntilSomebodyGivesItUp(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Purge")
	y.ready("mail")
	y.Stop()
	y.delete("mail")
	y.blocked("mail", v1alpha1.ReasonConnectionFailed, `annotation yardmaster.dev/abandon: "true"`)
	y.patch("mail", `{"metadata":{"annotations":{"yardmaster.dev/abandon":"true"}}}`)
	y.gone("mail")
	y.told("mail", v1alpha1.EventQueueDeleted)

	// The broker knows nothing of that. Who comes next says that the queue is theirs now.
	y.Restart()
	y.declare("mail", "")
	is := y.becomes("mail", v1alpha1.ConditionConflict, metav1.ConditionTrue, v1alpha1.ReasonOwnedByOtherQueue)
	_, rest, _ := strings.Cut(is.Message, "yardmaster.dev/supersedes: ")
	y.patch("mail", `{"metadata":{"annotations":{"yardmaster.dev/supersedes":`+rest+`}}}`)
	y.ready("mail")
}

func TestADeletedQueueOutlivesItsSecret(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Drain")
	y.ready("mail")
	y.send("mail", 1)
	y.delete("mail")
	y.blocked("mail", v1alpha1.ReasonNotEmpty, "1 message left")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.ns, Name: "broker"}}
	if err := cluster.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	y.take("mail", 1)
	y.gone("mail")
}

// In a namespace that goes nothing can be made: what a deletion would wait for does not come.
func TestANamespaceTakesItsQueuesWithItAndLeavesWhatIsOnTheBroker(t *testing.T) {
	y := newYard(t)
	for name, spec := range map[string]string{
		"letters":  "deletionPolicy: Purge",
		"orphans":  "deletionPolicy: Purge, deadLetter: {onDelete: Move, moveTo: nowhere}",
		"undone":   "deletionPolicy: Drain",
		"purged":   "deletionPolicy: Purge",
		"retained": "",
	} {
		y.declare(name, spec)
		y.ready(name)
		y.send(name, 1)
	}
	y.bury("letters", 1)
	y.bury("orphans", 1)
	y.deleteNamespace()
	for name, left := range map[string]bool{"letters": true, "orphans": true, "undone": true, "purged": false, "retained": true} {
		y.gone(name)
		if y.hasStream("yardmaster_"+name) != left {
			t.Errorf("%s: it is left on the broker: %t", name, !left)
		}
	}
}

func TestANamespaceTakesItsQueueWithItThoughTheBrokerIsDead(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "deletionPolicy: Purge")
	y.ready("mail")
	y.Stop()
	y.becomes("mail", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
	y.deleteNamespace()
	y.gone("mail")
}

// deleteNamespace deletes that of the test, and waits until it is gone.
func (y *yard) deleteNamespace() {
	y.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: y.ns}}
	if err := cluster.Delete(y.t.Context(), ns); err != nil {
		y.t.Fatal(err)
	}
	eventually(y.t, "the namespace to be gone", func() bool {
		return apierrors.IsNotFound(cluster.Get(y.t.Context(), client.ObjectKeyFromObject(ns), ns))
	})
}
