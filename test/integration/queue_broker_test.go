package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/redistest"
)

func reportsBrokerLossAndRecovery(t *testing.T) {
	e := newQueueEnv(t)
	e.createQueue("mail", "")
	e.waitUntilReady("mail")

	e.Stop()
	began := time.Now()
	is := e.waitForCondition("mail", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
	assertWithin(t, "the loss is reported", 15*time.Second, began)
	if !strings.Contains(is.Message, "unreachable") || strings.Contains(is.Message, "refused") {
		t.Errorf("the message is %q", is.Message)
	}
	if s := e.getQueue("mail").Status; s.Backlog != nil || s.MeasuredTime != nil {
		t.Errorf("the status has stats of an unreachable broker: %+v", s)
	}
	e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
	e.waitForEvent("mail", v1alpha1.EventBrokerUnreachable)
	time.Sleep(12 * time.Second) // the broker is away until the interval between reconnects no longer grows

	e.Restart()
	began = time.Now()
	e.waitUntilReady("mail")
	assertWithin(t, "the recovery is reported", 10*time.Second, began)
	e.waitForEvent("mail", v1alpha1.EventBrokerReachable)
}

func TestASecretCreatedLaterIsFound(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: later}}", "mail", "")
	is := e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	if !strings.Contains(is.Message, `"later"`) {
		t.Errorf("the message does not name the Secret: %q", is.Message)
	}
	if len(e.getQueue("mail").Finalizers) > 0 {
		t.Error("the Queue has a finalizer without a queue on the broker")
	}
	e.createSecret("later", "address", "nats://"+e.Address())
	is = e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid)
	if !strings.Contains(is.Message, `"url"`) {
		t.Errorf("the message does not name the key: %q", is.Message)
	}
	later := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "later"}}
	patch := client.RawPatch(mergePatch, []byte(`{"stringData":{"url":"nats://`+e.Address()+`"}}`))
	if err := cluster.Patch(t.Context(), later, patch); err != nil {
		t.Fatal(err)
	}
	e.waitUntilReady("mail")
}

func TestAQueueWithoutABrokerReportsNoBroker(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueueOn("suspend: false", "mail", "")
	e.waitForCondition("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNoBroker)
	p := newManifest(t, "Policy", "default", "{defaults: {"+natsBrokerField+", retry: {limit: 2}}}")
	p.SetNamespace(e.ns)
	if err := cluster.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	e.waitUntilReady("mail")
	for _, source := range e.getQueue("mail").Status.Effective.Sources {
		if source.Field == "broker" && (source.From != v1alpha1.FromPolicy || source.Policy != "default") {
			t.Errorf("the source of the broker is %+v", source)
		}
	}
}

func TestTheFirstOfTwoQueuesWithOneNameOwnsTheQueueOnTheBroker(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	e.createQueue("first", "name: mail, maxInFlight: 1")
	e.waitUntilReady("first")
	e.createQueue("second", "name: mail, maxInFlight: 2, deletionPolicy: Purge, deadLetter: {onDelete: Purge}")
	is := e.waitForCondition("second", v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue)
	if !strings.Contains(is.Message, "belongs to Queue first") {
		t.Errorf("the message does not name the owner: %q", is.Message)
	}
	e.waitForCondition("second", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue)
	if s := e.getQueue("second").Status; s.Backlog != nil {
		t.Errorf("the status has stats of another Queue's queue: %+v", s)
	}
	if got := e.consumerInfo("first").Config.MaxAckPending; got != 1 {
		t.Errorf("the second Queue changed maxInFlight to %d", got)
	}

	// The second Queue must not purge the dead letters of the first.
	e.addDeadLetters("first", 2)
	e.deleteQueue("second")
	e.waitUntilDeleted("second")
	poll.Until(t, "the dead letters in the status", func() bool {
		dead := e.getQueue("first").Status.Dead
		return dead != nil && *dead == 2
	})

	// Another Queue of the namespace gets the queue once the first Queue has released it.
	e.createQueue("third", "name: mail, maxInFlight: 3")
	e.waitForCondition("third", v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue)
	e.patchQueue("first", `{"spec":{"deadLetter":{"onDelete":"Purge"}}}`)
	e.deleteQueue("first")
	e.waitUntilDeleted("first")
	e.waitUntilReady("third")
	if got := e.consumerInfo("third").Config.MaxAckPending; got != 3 {
		t.Errorf("maxInFlight is %d", got)
	}
}

func TestAnUnreachableBrokerDoesNotDelayOtherQueues(t *testing.T) {
	e := newQueueEnv(t)
	dead := natstest.Start(t)
	dead.Stop()
	e.createSecret("dead", "url", "nats://"+dead.Address())
	for name := range strings.FieldsSeq("a b c d e f g h i j k l m n o p q r s t") {
		e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: dead}}", name, "")
	}
	began := time.Now()
	e.createQueue("mail", "")
	e.waitUntilReady("mail")
	assertWithin(t, "the other Queue is ready", 10*time.Second, began)
	e.waitForCondition("t", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
}

func TestTheDocumentedNATSPermissionsAreSufficient(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.>", "$KV.>", "yardmaster.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"$JS.API.>", "$KV.>", "yardmaster.>", "_INBOX.>"}},
		}}}
	})
	e.createSecret("login", "username", "me", "password", "right")
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: broker}, credentialsSecretRef: {name: login}}",
		"mail", "deletionPolicy: Purge, rateLimit: {limit: 5}, deadLetter: {onDelete: Purge}")
	e.waitUntilReady("mail")
	e.patchQueue("mail", `{"metadata":{"annotations":{"yardmaster.dev/dead-letters":"Requeue"}}}`)
	e.waitForEvent("mail", "DeadLettersRequeued")
	e.deleteQueue("mail")
	e.waitUntilDeleted("mail")
}

func TestAQueueOnTheAsynqEngine(t *testing.T) {
	t.Parallel()
	e := newQueueEnv(t)
	s := redistest.Start(t)
	e.createSecret("redis", "url", s.URL())
	e.createQueueOn("broker: {engine: Asynq, urlSecretRef: {name: redis}}", "mail", "deletionPolicy: Purge, maxBacklog: 10")
	e.waitUntilReady("mail")
	is := e.waitForCondition("mail", v1alpha1.ConditionConfigSynced, metav1.ConditionFalse, v1alpha1.ReasonUnsupported)
	if !strings.Contains(is.Message, "maxBacklog") {
		t.Errorf("the message is %q", is.Message)
	}
	e.deleteQueue("mail")
	e.waitUntilDeleted("mail")
}
