package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestPluginListsAndHoldsQueues(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "")
	y.ready("mail")
	g := newGate(t)
	g.plugin(t, y.ns, "queue", "pause", "mail").want(0)
	y.becomes("mail", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPaused)
	if !y.consumer("mail").Paused {
		t.Error("the broker goes on giving messages to workers")
	}
	list := g.plugin(t, y.ns, "queue", "list")
	list.want(0)
	wantSaid(t, list.out.String(), "NAME   STATUS   READY", "mail   Paused   0", "NATS")
	g.plugin(t, y.ns, "queue", "resume", "mail").want(0)
	y.ready("mail")
	if y.consumer("mail").Paused {
		t.Error("the broker still holds its messages")
	}
	unknown := g.plugin(t, y.ns, "queue", "pause", "parcels")
	unknown.want(2)
	wantSaid(t, unknown.errOut.String(), `error: queues.yardmaster.dev "parcels" not found`)
}

func TestPluginSeesToDeadLetters(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "")
	y.ready("mail")
	y.bury("mail", 5)
	g := newGate(t)
	list := g.plugin(t, y.ns, "queue", "dead", "list", "mail", "--limit=2")
	list.want(0)
	wantSaid(t, list.out.String(), "ID   DIED", "showing 2 of 5")
	asked := g.plugin(t, y.ns, "queue", "dead", "purge", "mail", "--all")
	asked.want(2)
	wantSaid(t, asked.errOut.String(), "without confirmation: set --yes, or run on a terminal")
	oldest := g.plugin(t, y.ns, "queue", "dead", "requeue", "mail", "--oldest=2")
	oldest.want(0)
	wantSaid(t, oldest.out.String(), "queue.yardmaster.dev/mail: requeued 2 dead letters")
	dropped := g.plugin(t, y.ns, "queue", "dead", "purge", "mail", "--all", "--yes")
	dropped.want(0)
	wantSaid(t, dropped.out.String(), "queue.yardmaster.dev/mail: deleted 3 dead letters")
	eventually(t, "2 messages ready and none dead", func() bool {
		status := y.queue("mail").Status
		return status.Ready != nil && *status.Ready == 2 && status.Dead != nil && *status.Dead == 0
	})
}

func TestPluginSeesToDeadLettersWithTheCallersRightsOnly(t *testing.T) {
	y := newYard(t)
	y.declare("mail", "")
	y.ready("mail")
	list := newGate(t).plugin(t, y.ns, "queue", "dead", "list", "mail", "--as=nobody")
	list.want(2)
	wantSaid(t, list.errOut.String(), "error: queues.yardmaster.dev \"mail\" is forbidden")
}

func TestPluginDrainsWatchesAndExplainsAPool(t *testing.T) {
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("postmen", "replicas: 3")
	c.waitForPool("postmen", "three", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 3 })
	g := newGate(t)
	watch := g.plugin(t, c.ns, "pool", "watch", "postmen")
	watch.until("/3 workers ready")
	drain := g.drainUntilWritten(t, c.ns, "--replicas=1")
	wantSaid(t, drain.out.String(), "workerpool.yardmaster.dev/postmen scaled from 3 to 1")
	if got := *c.getPool("postmen").Spec.Replicas; got != 1 {
		t.Errorf("spec.replicas is %d, want 1", got)
	}
	watch.until("/1 workers ready")
	watch.stop()
	watch.want(130)
	explain := g.plugin(t, c.ns, "pool", "explain", "postmen")
	explain.want(0)
	wantSaid(t, explain.out.String(), "Manual: spec.replicas is 1, and autoscaling is off")
	more := g.plugin(t, c.ns, "pool", "drain", "postmen", "--replicas=1")
	more.want(2)
	wantSaid(t, more.errOut.String(), "cannot drain: spec.replicas is already 1")
}

// drainUntilWritten drains postmen. The operator may write the status between the plugin's
// look and its request, which is then refused, as it is to be.
func (g *gate) drainUntilWritten(t *testing.T, ns string, args ...string) *call {
	t.Helper()
	for {
		drain := g.plugin(t, ns, append([]string{"pool", "drain", "postmen"}, args...)...)
		code := <-drain.code
		if code == 0 {
			return drain
		}
		if said := drain.errOut.String(); code != 2 || !strings.Contains(said, "nothing was written: check the change and try again") {
			t.Fatalf("code %d: %s", code, said)
		}
	}
}

func TestPluginExplainsADecision(t *testing.T) {
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("clerks", "autoscaling: {minReplicas: 0, maxReplicas: 4, dryRun: true}")
	c.send("mail", 100)
	g := newGate(t)
	c.waitForPool("clerks", "decided on with 100 messages", func(wp *v1alpha1.WorkerPool) bool {
		d := wp.Status.LastDecision
		return d != nil && d.Inputs.Backlog != nil && *d.Inputs.Backlog == 100
	})
	explain := g.plugin(t, c.ns, "pool", "explain", "clerks")
	explain.want(0)
	wantSaid(t, explain.out.String(), "DryRun: ", "100 messages, oldest ", "s·(λ + B/T)", "Limits: 0 to 4 workers. The pool had 0")
	drain := g.plugin(t, c.ns, "pool", "drain", "clerks")
	drain.want(2)
	wantSaid(t, drain.errOut.String(), "cannot drain: it is autoscaled between 0 and 4 workers; lower spec.autoscaling.maxReplicas instead")
}
