package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// documentedPermissions returns the NATS permissions of a worker that docs/worker.md lists, also those for the states of jobs, as they are in
// the domain of the hub.
func documentedPermissions(t *testing.T, inboxes string) *server.Permissions {
	t.Helper()
	page, err := os.ReadFile("../docs/worker.md")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	const lists = 2
	blocks := regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(list, lists)
	require.True(t, len(blocks) == lists, "docs/worker.md has no two lists of permissions")
	inDomain := strings.NewReplacer("$JS.API.", "$JS.hub.API.", "$KV.", "$JS.hub.API.$KV.")
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: strings.Fields(inDomain.Replace(blocks[0][1] + blocks[1][1]))},
		Subscribe: &server.SubjectPermission{Allow: []string{inboxes}},
	}
}

func TestDocumentedBrokerPermissionsAreSufficientInADomainWithAnInboxPrefix(t *testing.T) {
	t.Parallel()
	seed, public := natstest.NewNKey(t)
	hub, leaf := natstest.StartLeaf(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: documentedPermissions(t, "_INBOX_worker.>")}}
	})
	file := filepath.Join(t.TempDir(), "nkey")
	require.NoError(t, os.WriteFile(file, append(seed, '\n'), 0o600))
	env := &testEnv{queuetest.StartOn(t, hub, "orders", withRateLimit(100), withResults), t}
	env.Send("poison", "good", "retried", "released")
	env.SendWithHeaders("unique", nats.Header{broker.UniqueHeader: {"k"}})
	var wasTried, wasReleased atomic.Bool
	w := env.start(env.config(withFastRetries, func(c *Config) {
		c.Concurrency, c.Queues[0].Results = 1, &ResultsConfig{Retention: Duration(time.Hour)}
		c.Broker = BrokerConfig{URL: "nats://" + leaf.Address(), NKeyFile: file, JetStreamDomain: natstest.HubDomain, InboxPrefix: "_INBOX_worker"}
	}), func(_ context.Context, job *Job) error {
		switch payload := string(job.Payload); {
		case payload == "poison":
			return DeadLetter("bad")
		case payload == "retried" && !wasTried.Swap(true):
			return errors.New("not yet")
		case payload == "released" && !wasReleased.Swap(true):
			return Snooze(time.Millisecond)
		}
		return nil
	})
	env.WaitUntilEmpty()
	requireCleanShutdown(t, w)
	require.Equal(t, 1, env.Stats().DeadLetters)
	reports := func(result string) float64 { return testutil.ToFloat64(w.metrics.reports.WithLabelValues(result)) }
	require.True(t, reports("failed") == 0 && reports("succeeded") >= 4, "%v reports failed, %v succeeded", reports("failed"), reports("succeeded"))
}
