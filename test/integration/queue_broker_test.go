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
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient/redistest"
)

// within checks that something took no longer than was promised.
func within(t *testing.T, what string, most time.Duration, since time.Time) {
	t.Helper()
	took := time.Since(since)
	t.Logf("%s after %s", what, took.Round(time.Millisecond))
	if took > most {
		t.Errorf("%s after %s, want at most %s", what, took, most)
	}
}

func TestALostBrokerIsToldOfIn15SecondsAndItsReturnIn10(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "")
	y.ready("mail")

	y.Stop()
	began := time.Now()
	is := y.becomes("mail", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
	within(t, "the loss is told of", 15*time.Second, began)
	if !strings.Contains(is.Message, "refused") {
		t.Errorf("the cause is not told: %q", is.Message)
	}
	if s := y.queue("mail").Status; s.Ready != nil || s.MeasuredTime != nil {
		t.Errorf("there are figures that nobody has read: %+v", s)
	}
	y.becomes("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
	y.told("mail", v1alpha1.EventBrokerUnreachable)
	time.Sleep(12 * time.Second) // so that tries are as far apart as they get

	y.Restart()
	began = time.Now()
	y.ready("mail")
	within(t, "the return is told of", 10*time.Second, began)
	y.told("mail", v1alpha1.EventBrokerReachable)
}

func TestASecretThatComesLaterIsFound(t *testing.T) {
	y := newYard(t)
	y.declareOn("broker: {engine: NATS, urlSecretRef: {name: later}}", "mail", "")
	is := y.becomes("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	if !strings.Contains(is.Message, `"later"`) {
		t.Errorf("it does not name the Secret: %q", is.Message)
	}
	if len(y.queue("mail").Finalizers) > 0 {
		t.Error("there is a finalizer for nothing")
	}
	y.secret("later", "address", "nats://"+y.Address())
	is = y.becomes("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid)
	if !strings.Contains(is.Message, `"url"`) {
		t.Errorf("it does not name the key: %q", is.Message)
	}
	later := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: y.ns, Name: "later"}}
	patch := client.RawPatch(mergePatch, []byte(`{"stringData":{"url":"nats://`+y.Address()+`"}}`))
	if err := cluster.Patch(t.Context(), later, patch); err != nil {
		t.Fatal(err)
	}
	y.ready("mail")
}

func TestAQueueWithoutABrokerSaysSo(t *testing.T) {
	y := newYard(t)
	y.declareOn("paused: false", "mail", "")
	y.becomes("mail", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNoBroker)
	p := given(t, "Policy", "house", "{defaults: {"+broker+", retry: {maxAttempts: 3}}}")
	p.SetNamespace(y.ns)
	if err := cluster.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	y.ready("mail")
	for _, source := range y.queue("mail").Status.Effective.Sources {
		if source.Field == "broker" && (source.From != v1alpha1.FromPolicy || source.Policy != "house") {
			t.Errorf("the broker is from %+v", source)
		}
	}
}

func TestWrongCredentialsAreToldOfAndPutRight(t *testing.T) {
	y := newYard(t, func(o *server.Options) { o.Users = []*server.User{{Username: "me", Password: "right"}} })
	login := y.secret("login", "username", "me", "password", "wrong")
	y.declareOn("broker: {engine: NATS, urlSecretRef: {name: broker}, credentialsSecretRef: {name: login}}", "mail", "")
	is := y.becomes("mail", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonUnauthorized)
	if strings.Contains(is.Message, "wrong") {
		t.Errorf("the password is told: %q", is.Message)
	}
	if err := cluster.Patch(t.Context(), login, client.RawPatch(mergePatch, []byte(`{"stringData":{"password":"right"}}`))); err != nil {
		t.Fatal(err)
	}
	y.ready("mail")
}

func TestOfTwoQueuesWithOneNameTheOlderKeepsIt(t *testing.T) {
	y := newYard(t)
	y.declare("first", "name: mail, maxInFlight: 1")
	y.ready("first")
	time.Sleep(time.Second) // ages are in whole seconds
	y.declare("second", "name: mail, maxInFlight: 2, deletionPolicy: Purge, deadLetter: {onDelete: Purge}")
	is := y.becomes("second", v1alpha1.ConditionConflict, metav1.ConditionTrue, v1alpha1.ReasonOwnedByOtherQueue)
	if !strings.Contains(is.Message, y.ns+"/first") {
		t.Errorf("it does not name the older: %q", is.Message)
	}
	y.becomes("second", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonOwnedByOtherQueue)
	if s := y.queue("second").Status; s.Ready != nil {
		t.Errorf("it tells figures of another's queue: %+v", s)
	}
	if got := y.consumer("mail").Config.MaxAckPending; got != 1 {
		t.Errorf("the younger has changed maxInFlight to %d", got)
	}

	// What it is told to purge is not its own.
	y.bury("mail", 2)
	y.delete("second")
	y.gone("second")
	eventually(t, "the dead letters to be seen", func() bool {
		dead := y.queue("first").Status.Dead
		return dead != nil && *dead == 2
	})

	// Its successor has the queue as soon as the older has let it go.
	y.declare("third", "name: mail, maxInFlight: 3")
	y.becomes("third", v1alpha1.ConditionConflict, metav1.ConditionTrue, v1alpha1.ReasonOwnedByOtherQueue)
	y.patch("first", `{"spec":{"deadLetter":{"onDelete":"Purge"}}}`)
	y.delete("first")
	y.gone("first")
	y.ready("third")
	if got := y.consumer("mail").Config.MaxAckPending; got != 3 {
		t.Errorf("maxInFlight is %d", got)
	}
}

func TestAFieldThatNobodyKeepsToIsToldOf(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "")
	y.ready("mail")
	y.patch("mail", `{"spec":{"maxBacklog":10}}`)
	is := y.becomes("mail", v1alpha1.ConditionPolicyFullyEnforced, metav1.ConditionFalse, v1alpha1.ReasonUnsupported)
	if !strings.Contains(is.Message, "maxBacklog") || !strings.Contains(is.Message, "created without maxBacklog") {
		t.Errorf("it says %q", is.Message)
	}
	if by := y.queue("mail").Status.Enforcement["maxBacklog"]; by != v1alpha1.EnforcementUnsupported {
		t.Errorf("the enforcement is %q", by)
	}
}

// A broker that is there, and another that is not.
func TestADeadBrokerKeepsNobodyElseWaiting(t *testing.T) {
	y := newYard(t)
	dead := natstest.Start(t)
	dead.Stop()
	y.secret("dead", "url", "nats://"+dead.Address())
	for name := range strings.FieldsSeq("a b c d e f g h i j k l m n o p q r s t") {
		y.declareOn("broker: {engine: NATS, urlSecretRef: {name: dead}}", name, "")
	}
	began := time.Now()
	y.declare("mail", "")
	y.ready("mail")
	within(t, "the other is ready", 10*time.Second, began)
	y.becomes("t", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, v1alpha1.ReasonConnectionFailed)
}

func TestThePermissionsOfTheManualAreEnough(t *testing.T) {
	y := newYard(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.>", "$KV.>", "yardmaster.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"$JS.API.>", "$KV.>", "yardmaster.>", "_INBOX.>"}},
		}}}
	})
	y.secret("login", "username", "me", "password", "right")
	y.declareOn("broker: {engine: NATS, urlSecretRef: {name: broker}, credentialsSecretRef: {name: login}}",
		"mail", "deletionPolicy: Purge, rateLimit: {limit: 5}, deadLetter: {onDelete: Purge}")
	y.ready("mail")
	y.patch("mail", `{"metadata":{"annotations":{"yardmaster.dev/dead-letters":"Requeue"}}}`)
	y.told("mail", "DeadLettersRequeued")
	y.delete("mail")
	y.gone("mail")
}

func TestAQueueIsKeptOnRedisThroughAsynq(t *testing.T) {
	y := newYard(t)
	s := redistest.Start(t)
	y.secret("redis", "url", s.URL())
	y.declareOn("broker: {engine: Asynq, urlSecretRef: {name: redis}}", "mail", "deletionPolicy: Purge, maxBacklog: 10")
	y.ready("mail")
	if by := y.queue("mail").Status.Enforcement["maxBacklog"]; by != v1alpha1.EnforcementUnsupported {
		t.Errorf("maxBacklog is enforced by %q", by)
	}
	y.delete("mail")
	y.gone("mail")
}
