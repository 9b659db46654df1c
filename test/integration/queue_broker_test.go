package integration

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/redistest"
)

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
