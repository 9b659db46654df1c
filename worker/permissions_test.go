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

// The page for users lists what a worker may do on the broker: that is enough.
func TestAWorkerNeedsNoMorePermissionsThanTheDocumentationSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/worker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "needs to publish to")
	block := regexp.MustCompile("(?s)```\n(.*?)```").FindStringSubmatch(list)
	if block == nil {
		t.Fatal("the page has no such list")
	}
	b := newBench(t, func(q *broker.QueueConfig) {
		q.RateLimit = &broker.RateLimit{Limit: 100, Per: time.Second, Burst: 1}
	})
	options := b.server.Options()
	options.Users = []*server.User{
		{Username: "admin", Password: "p"},
		{Username: "worker", Password: "p", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: strings.Fields(block[1])},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}},
	}
	options.NoAuthUser = "admin"
	b.server.Restart()
	eventually(t, "it can be sent to", func() bool {
		_, err := b.js.Publish(t.Context(), "yardmaster.orders.ready.default", []byte("poison"))
		return err == nil
	})
	b.send("default", "good", "again")
	var again atomic.Bool
	w := b.start(b.config(func(c *Config) {
		fast(c)
		c.Concurrency = 1
		c.Broker.URL = "nats://worker:p@" + b.server.Address()
	}), func(_ context.Context, job *Job) error {
		switch string(job.Payload) {
		case "poison":
			return DeadLetter("bad")
		case "again":
			if !again.Swap(true) {
				return errors.New("not yet")
			}
		}
		return nil
	})
	eventually(t, "all are settled", func() bool { return b.figures().DeadLetters == 1 && b.empty() })
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}
