package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/redistest"
)

func TestAPoolWithARedisListScalesAtOnceWithTheDefaultTarget(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t)
	redis := redistest.Start(t)
	c.createSecret("redis", "url", redis.URL())
	p := newManifest(t, "WorkerPool", "list", `{image: "worker:1", drain: {mode: Signal},
		source: {redis: {urlSecretRef: {name: redis}, key: jobs}}, autoscaling: {minReplicas: 1, maxReplicas: 6}}`)
	p.SetNamespace(c.ns)
	mustCreate(t, p)
	c.waitFor("the first worker", func() bool { return c.getPool("list").Status.Ready == 1 })

	redis.RunCLI(append([]string{"LPUSH", "jobs"}, make([]string, 100)...)...)
	start := time.Now()
	c.waitFor("six workers", func() bool { return c.getPool("list").Status.Desired == 6 })
	assertWithin(t, "six workers are wanted", 10*time.Second, start)
	d := c.getPool("list").Status.LastDecision
	if strings.Contains(d.Message, "service time, ") {
		t.Errorf("a service time is assumed: %s", d.Message)
	}
	if want := "10 recommended for 10 messages per worker (default without a service time)"; !strings.HasPrefix(d.Message, want) {
		t.Errorf("message %q, want %q", d.Message, want)
	}
}
