package integration

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
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
