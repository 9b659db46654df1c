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
	dto "github.com/prometheus/client_model/go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
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

func withLimitOf100(q *broker.QueueConfig) {
	q.RateLimit = &broker.RateLimit{Limit: 100, Per: time.Second, Burst: 1}
	q.Results = broker.ResultsConfig{Retention: time.Hour, MaxBytes: broker.DefaultResultsBytes}
}

func countReports(families []*dto.MetricFamily, result string) (count float64) {
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "yardmaster_worker_state_reports_total" && m.GetLabel()[0].GetValue() == result {
				count += m.GetCounter().GetValue()
			}
		}
	}
	return count
}

// settleInEachWay runs a worker that needs all permissions.
func (env *testEnv) settleInEachWay(t *testing.T, login BrokerConfig) {
	t.Helper()
	env.waitUntilSendable("poison")
	env.send("default", "good", "retried", "released")
	unique := &nats.Msg{Subject: "yardmaster.orders.ready.default", Header: nats.Header{broker.UniqueHeader: {"k"}}}
	_, err := env.js.PublishMsg(t.Context(), unique)
	require.NoError(t, err)
	var wasTried, wasReleased atomic.Bool
	w := env.start(env.config(func(c *Config) {
		withFastRetries(c)
		c.Concurrency = 1
		c.Broker = login
		c.Queues[0].Results = &ResultsConfig{Retention: Duration(time.Hour)}
	}), func(_ context.Context, job *Job) error {
		switch string(job.Payload) {
		case "poison":
			return DeadLetter("bad")
		case "retried":
			if !wasTried.Swap(true) {
				return errors.New("not yet")
			}
		case "released":
			if !wasReleased.Swap(true) {
				return Snooze(time.Millisecond)
			}
		}
		return nil
	})
	poll.Until(t, "all jobs to be settled", func() bool { return env.stats().DeadLetters == 1 && env.isEmpty() })
	requireCleanShutdown(t, w)
	if families, err := w.metrics.registry.Gather(); err != nil || countReports(families, "failed") > 0 || countReports(families, "succeeded") < 4 {
		t.Errorf("%v: %v reports failed, %v succeeded", err, countReports(families, "failed"), countReports(families, "succeeded"))
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
	newTestEnvOn(t, hub, withLimitOf100).settleInEachWay(t, BrokerConfig{
		URL: "nats://" + leaf.Address(), NKeyFile: file, JetStreamDomain: natstest.HubDomain, InboxPrefix: "_INBOX_worker",
	})
}
