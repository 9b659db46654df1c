package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/demo/shell"
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
)

// The burst of jobs.
const (
	ordersSent = 2000
	ordersTake = 400 * time.Millisecond
)

// orders is the act of the Queue and the WorkerPool.
type orders struct {
	*stage

	history []int64 // the backlog at each look
	rolled  bool
}

// play has a pool that sleeps work off a burst, rolls it out in the middle, and judges.
func (a *orders) play(ctx context.Context) error {
	a.title("Queue and WorkerPool: workers by backlog")
	err := a.act(ctx)
	if err != nil && ctx.Err() == nil {
		a.kubectl(ctx, "-n", ordersNamespace, "get", "queues,workerpools,deployments,pods", "-o", "wide")
		a.kubectl(ctx, "-n", ordersNamespace, "events")
		return a.explainOperator(ctx, err)
	}
	return err
}

func (a *orders) act(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.prepare, a.send, a.follow, a.judge} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	a.kubectl(ctx, "-n", ordersNamespace, "get", "queues,workerpools")
	a.kubectl(ctx, "-n", ordersNamespace, "events", "--for", "workerpool/clerks")
	return nil
}

// prepare brings a broker, and declares the queue and the pool.
func (a *orders) prepare(ctx context.Context) error {
	if err := a.timed("built the images of NATS, of the example worker and of the example runner", func() error { return a.cluster.Tryout(ctx) }); err != nil {
		return err
	}
	if err := a.freshNamespace(ctx, ordersNamespace); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-k", "config/nats"},
		{"-n", "nats", "rollout", "status", "statefulset/nats", "--timeout=120s"},
		{"-n", ordersNamespace, "apply", "-f", "examples/orders"},
	} {
		a.screen.PrintLine("  $ kubectl %s", strings.Join(args, " "))
		command := a.cluster.Kubectl()
		if err := shell.Quiet(ctx, command[0], append(command[1:], args...)...); err != nil {
			return err
		}
	}
	return a.until(ctx, "the queue to be there", func(queue *v1alpha1.Queue, _ *v1alpha1.WorkerPool) bool {
		return queue.Status.Ready != nil
	})
}

// send sends the burst.
func (a *orders) send(ctx context.Context) error {
	a.screen.PrintLine("\n  The pool sleeps: it has no worker. Now %d jobs come at once, each of %s:\n", ordersSent, ordersTake)
	return a.run(ctx, "send", "send", "-url=nats://nats.nats:4222", "-queue=orders", "-run=demo",
		fmt.Sprintf("-jobs=%d", ordersSent), fmt.Sprintf("-milliseconds=%d", ordersTake.Milliseconds()))
}

// run runs the ledger's program in the cluster, as a Job.
func (a *orders) run(ctx context.Context, name string, args ...string) error {
	pool, err := read("orders/workerpool.yaml", ordersNamespace)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(pool.Object)
	if err != nil {
		return err
	}
	like := &v1alpha1.WorkerPool{}
	if err := json.Unmarshal(raw, like); err != nil {
		return err
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ordersNamespace}}
	job.Spec.BackoffLimit = new(int32(2))
	job.Spec.Template.Spec = like.Spec.Template.Spec // the worker's image has it, and the ledger is mounted
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers[0].Command = append([]string{"/ledger-tool"}, args...)
	return a.client.Create(ctx, job)
}

// until waits for the queue and the pool to be so.
func (a *orders) until(ctx context.Context, what string, so func(*v1alpha1.Queue, *v1alpha1.WorkerPool) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, errors.New("time is up"))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, often, true, func(ctx context.Context) (bool, error) {
		queue, pool := &v1alpha1.Queue{}, &v1alpha1.WorkerPool{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: ordersNamespace, Name: "orders"}, queue); err != nil {
			return false, nil //nolint:nilerr // tried again until time is up
		}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: ordersNamespace, Name: "clerks"}, pool); err != nil {
			return false, nil //nolint:nilerr // tried again until time is up
		}
		return so(queue, pool), nil
	})
	if err != nil {
		return fmt.Errorf("%w after %s: waiting for %s", context.Cause(ctx), a.limit, what)
	}
	return nil
}

// follow shows backlog and workers until the pool sleeps again, and rolls it out on the way.
func (a *orders) follow(ctx context.Context) error {
	defer a.screen.KeepLines()
	var before *v1alpha1.WorkerPool
	begun := time.Now()
	err := a.until(ctx, "the pool to sleep again", func(_ *v1alpha1.Queue, pool *v1alpha1.WorkerPool) bool {
		a.tell(before, pool, time.Since(begun))
		before = pool
		a.rollOut(ctx, pool)
		s := &pool.Status
		return a.rolled && s.Replicas == 0 && s.Draining == 0 && s.Backlog != nil && *s.Backlog == 0 && s.CurrentRevision == s.UpdatedRevision
	})
	if err == nil {
		a.screen.PrintLine("")
	}
	return err
}

func (a *orders) tell(before, pool *v1alpha1.WorkerPool, since time.Duration) {
	if !a.screen.IsTerminal() {
		for _, change := range render.PoolChanges(before, pool) {
			a.screen.PrintLine("  %4s  %s", since.Round(time.Second), change)
		}
		return
	}
	if pool.Status.Backlog != nil {
		a.history = append(a.history, *pool.Status.Backlog)
	}
	a.screen.DrawLines(render.PoolLoadTable(a.screen.Style, []*render.PoolLoad{{Pool: pool, Backlogs: a.history}}).Lines(false))
}

// rollOut gives the workers a new version, once, when several are there.
func (a *orders) rollOut(ctx context.Context, pool *v1alpha1.WorkerPool) {
	s := &pool.Status
	if a.rolled || s.Ready < 2 || s.Ready < s.Desired || s.Backlog == nil || *s.Backlog == 0 {
		return
	}
	const patch = `{"spec":{"version":"2"}}`
	a.screen.PrintLine("\n  In the middle of it the workers get a new version:\n  $ kubectl -n %s patch workerpool clerks --type=merge -p '%s'\n", ordersNamespace, patch)
	if err := a.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		a.screen.PrintLine("  %v", err) // and it is tried again
		return
	}
	a.rolled = true
}

// judge verifies the ledger.
func (a *orders) judge(ctx context.Context) error {
	if err := a.run(ctx, "verify", "verify", "-run=demo", fmt.Sprintf("-jobs=%d", ordersSent)); err != nil {
		return err
	}
	var verdict verify.LedgerResult
	err := a.until(ctx, "the verdict", func(*v1alpha1.Queue, *v1alpha1.WorkerPool) bool {
		output := a.logOf(ctx, "verify")
		_, output, found := strings.Cut(output, "{")
		line, _, _ := strings.Cut(output, "\n")
		return found && json.Unmarshal([]byte("{"+line), &verdict) == nil
	})
	if err != nil {
		return err
	}
	a.screen.PrintLine("  The ledger, in which each worker writes what it has done: %s", verdict.String())
	if !verdict.EachDoneOnce() {
		return fmt.Errorf("not each job was done once: %+v", verdict)
	}
	if verdict.Revisions < 2 {
		return fmt.Errorf("the rollout was not in the middle of the work: %+v", verdict)
	}
	a.screen.PrintLine("%s", a.screen.Success(fmt.Sprintf("All %d jobs were done once, over a rollout and back to zero.", verdict.Sent)))
	return nil
}

// logOf is what the Pods of a Job have written; nothing if that cannot be read yet.
func (a *orders) logOf(ctx context.Context, job string) string {
	var pods corev1.PodList
	if err := a.client.List(ctx, &pods, client.InNamespace(ordersNamespace), client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil || len(pods.Items) == 0 {
		return ""
	}
	raw, err := a.logs.CoreV1().Pods(ordersNamespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return ""
	}
	return string(raw)
}
