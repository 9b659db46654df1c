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

func (e *queueEnv) hasStream(name string) bool {
	e.t.Helper()
	return slices.Contains(e.streamNames(), name)
}

func TestWorkerPoolsBlockDeletionOfTheirQueue(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("mail", "deletionPolicy: Purge")
	e.waitUntilReady("mail")
	pool := newManifest(t, "WorkerPool", "readers", `{queues: [{name: mail}], image: "busybox:1.37", replicas: 0}`)
	pool.SetNamespace(e.ns)
	mustCreate(t, pool)
	e.deleteQueue("mail")
	if is := e.waitForCondition("mail", v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonStillReferenced); !strings.Contains(is.Message, "readers") {
		t.Errorf("the message is %q", is.Message)
	}
	if !e.hasStream(e.streamName("mail")) {
		t.Error("the queue was deleted on the broker")
	}
	mustDelete(t, pool)
	e.waitUntilDeleted("mail")
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
	mustDelete(e.t, ns)
	poll.Until(e.t, "the deletion of the namespace", func() bool {
		return apierrors.IsNotFound(cluster.Get(e.t.Context(), client.ObjectKeyFromObject(ns), ns))
	})
}
