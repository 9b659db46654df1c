package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
)

func TestPluginManagesDeadLettersWithTheUsersPermissions(t *testing.T) {
	t.Parallel()
	y := newQueueEnv(t)
	y.createQueue("mail", "")
	y.waitUntilReady("mail")
	y.addDeadLetters("mail", 5)
	p := newAPIServerProxy(t)
	forbidden := p.runPlugin(t, y.ns, "queue", "dead", "list", "mail", "--as=jane")
	forbidden.wantExitCode(2)
	wantTexts(t, forbidden.errOut.String(), "error: queues.yardmaster.dev \"mail\" is forbidden")
	list := p.runPlugin(t, y.ns, "queue", "dead", "list", "mail", "--limit=2")
	list.wantExitCode(0)
	wantTexts(t, list.out.String(), "ID   DIED", "showing 2 of 5")
	unconfirmed := p.runPlugin(t, y.ns, "queue", "dead", "purge", "mail", "--all")
	unconfirmed.wantExitCode(2)
	wantTexts(t, unconfirmed.errOut.String(), "without confirmation: set --yes, or run on a terminal")
	oldest := p.runPlugin(t, y.ns, "queue", "dead", "requeue", "mail", "--oldest=2")
	oldest.wantExitCode(0)
	wantTexts(t, oldest.out.String(), "queue.yardmaster.dev/mail: requeued 2 dead letters")
	dropped := p.runPlugin(t, y.ns, "queue", "dead", "purge", "mail", "--all", "--yes")
	dropped.wantExitCode(0)
	wantTexts(t, dropped.out.String(), "queue.yardmaster.dev/mail: deleted 3 dead letters")
	poll.Until(t, "2 messages ready and none dead", func() bool {
		status := y.getQueue("mail").Status
		return status.Backlog != nil && *status.Backlog == 2 && status.Dead != nil && *status.Dead == 0
	})
}

func TestPluginDrainsWatchesExplainsAndRestartsAPool(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("mailers", "replicas: 3")
	c.waitForPool("mailers", "three", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 3 })
	p := newAPIServerProxy(t)
	watch := p.runPlugin(t, c.ns, "pool", "watch", "mailers")
	watch.waitForOutput("/3 workers ready")
	drain := p.drainPool(t, c.ns, "--replicas=1")
	wantTexts(t, drain.out.String(), "workerpool.yardmaster.dev/mailers scaled from 3 to 1")
	if got := *c.getPool("mailers").Spec.Replicas; got != 1 {
		t.Errorf("spec.replicas is %d, want 1", got)
	}
	watch.waitForOutput("/1 workers ready")
	watch.stop()
	watch.wantExitCode(130)
	explain := p.runPlugin(t, c.ns, "pool", "explain", "mailers")
	explain.wantExitCode(0)
	wantTexts(t, explain.out.String(), "Manual: spec.replicas is 1, and autoscaling is off")
	more := p.runPlugin(t, c.ns, "pool", "drain", "mailers", "--replicas=1")
	more.wantExitCode(2)
	wantTexts(t, more.errOut.String(), "cannot drain: spec.replicas is already 1")

	c.waitForPool("mailers", "one", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 1 && wp.Status.Replicas == 1 })
	before := c.getPool("mailers").Status.CurrentRevision
	restart := p.runPlugin(t, c.ns, "pool", "restart", "mailers", "--watch")
	restart.wantExitCode(0)
	wantTexts(t, restart.out.String(), "workerpool.yardmaster.dev/mailers restarts: its workers are replaced by new ones")
	if wp := c.getPool("mailers"); wp.Status.CurrentRevision == before || wp.Status.Ready != 1 {
		t.Errorf("revision %s of %d workers serves, before: %s", wp.Status.CurrentRevision, wp.Status.Ready, before)
	}
}

// drainPool drains the pool mailers. It retries if the operator changed the pool between the
// plugin's read and its request.
func (p *apiServerProxy) drainPool(t *testing.T, ns string, args ...string) *pluginRun {
	t.Helper()
	for {
		drain := p.runPlugin(t, ns, append([]string{"pool", "drain", "mailers"}, args...)...)
		code := <-drain.code
		if code == 0 {
			return drain
		}
		if message := drain.errOut.String(); code != 2 || !strings.Contains(message, "nothing was written: check the change and try again") {
			t.Fatalf("exit code %d: %s", code, message)
		}
	}
}
