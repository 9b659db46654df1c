package integration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/redistest"
)

func TestTheFirstMessageScalesAPoolFromZero(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t)
	c.createPool("mailers", "autoscaling: {maxReplicas: 5}")
	c.waitForPool("mailers", "without workers", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.LastDecision != nil && wp.Status.Desired == 0
	})
	c.sendMessages("mail", 1)
	sent := time.Now()
	c.waitForPool("mailers", "scaled", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Desired > 0 })
	assertWithin(t, "replicas are requested", 2*time.Second, sent)
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready > 0 })
}

func TestPoolDoesNotChangeAnObjectOfAnotherOwner(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}, Data: map[string]string{"a": "b"}}
	mustCreate(t, mine)
	c.createPool("mailers", "replicas: 1")
	is := c.waitForCondition("mailers", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	if want := "ConfigMap mailers-workers already exists and does not belong to this WorkerPool"; !strings.Contains(is.Message, want) {
		t.Errorf("the message is %q, want %q", is.Message, want)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil || len(mine.Data) != 1 {
		t.Errorf("the ConfigMap was changed: %v, %v", err, mine.Data)
	}
}

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
