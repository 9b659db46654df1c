package worker

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// docs/worker.md lists the NATS permissions of a worker. The list must be sufficient.
func TestDocumentedBrokerPermissionsAreSufficient(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/worker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	block := regexp.MustCompile("(?s)```\n(.*?)```").FindStringSubmatch(list)
	if block == nil {
		t.Fatal("docs/worker.md has no list of permissions")
	}
	env := newTestEnv(t, func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: 100, Per: time.Second, Burst: 1}
	})
	options := env.server.Options()
	options.Users = []*server.User{
		{Username: "admin", Password: "p"},
		{Username: "worker", Password: "p", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: strings.Fields(block[1])},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}},
	}
	options.NoAuthUser = "admin"
	env.server.Restart()
	env.waitUntilSendable("poison")
	env.send("default", "good", "retried")
	var wasTried atomic.Bool
	w := env.start(env.config(func(c *Config) {
		withFastRetries(c)
		c.Concurrency = 1
		c.Broker.URL = "nats://worker:p@" + env.server.Address()
	}), func(_ context.Context, job *Job) error {
		switch string(job.Payload) {
		case "poison":
			return DeadLetter("bad")
		case "retried":
			if !wasTried.Swap(true) {
				return errors.New("not yet")
			}
		}
		return nil
	})
	eventually(t, "all jobs are settled", func() bool { return env.stats().DeadLetters == 1 && env.isEmpty() })
	requireCleanShutdown(t, w)
}
