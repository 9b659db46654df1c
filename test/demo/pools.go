package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
)

const (
	// The number of jobs in the burst, and how long each takes.
	demoJobCount    = 3000
	demoJobDuration = 400 * time.Millisecond
	// The backlogs that the page shows.
	sampleInterval = 2 * time.Second
	maxSamples     = 20
)

type poolScenario struct {
	*demoEnvironment

	section        *page.Section
	backlogs       []int64
	sampledAt      time.Time
	rolloutStarted bool
}

func (a *poolScenario) begin() *page.Section {
	a.section = a.page.NewSection("WorkerPool", "autoscaling by backlog: examples/orders in namespace "+ordersNamespace)
	return a.section
}

// run sends a burst of jobs to a pool without workers, starts a rollout while they run, and checks that each job ran once.
func (a *poolScenario) run(ctx context.Context) (result string, err error) {
	for _, step := range []func(context.Context) error{a.prepareQueue, a.sendJobs, a.followPool} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	return a.verifyLedger(ctx)
}

func (a *poolScenario) showDetails(ctx context.Context) {
	a.page.PrintTitle("Queue and WorkerPool in kubectl")
	a.runKubectl(ctx, "-n", ordersNamespace, "get", "queues,workerpools")
	a.runKubectl(ctx, "-n", ordersNamespace, "events", "--for", "workerpool/orders")
}

func (a *poolScenario) showState(ctx context.Context, _ error) {
	a.page.PrintTitle("Queue and WorkerPool")
	a.runKubectl(ctx, "-n", ordersNamespace, "get", "queues,workerpools,deployments,pods", "-o", "wide")
	a.runKubectl(ctx, "-n", ordersNamespace, "events")
}

func (a *poolScenario) prepareQueue(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, ordersNamespace); err != nil {
		return err
	}
	if err := a.runKubectlQuietly(ctx, "-n", ordersNamespace, "apply", "-f", "examples/orders"); err != nil {
		return err
	}
	return a.waitForPool(ctx, "the Queue to be ready", func(queue *v1alpha1.Queue, _ *v1alpha1.WorkerPool) bool { return queue.Status.Backlog != nil })
}

func (a *poolScenario) sendJobs(ctx context.Context) error {
	a.section.Log("the pool has no workers; sending %d jobs at once, each taking %s", demoJobCount, demoJobDuration)
	return a.runLedgerTool(ctx, "send", "send", "-url=nats://nats.nats:4222", "-queue=orders", "-run=demo",
		fmt.Sprintf("-jobs=%d", demoJobCount), fmt.Sprintf("-milliseconds=%d", demoJobDuration.Milliseconds()))
}

// runLedgerTool runs the load generator's program in the cluster as a Job.
func (a *poolScenario) runLedgerTool(ctx context.Context, name string, args ...string) error {
	pool, err := readManifest("orders/workerpool.yaml", ordersNamespace)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(pool.Object)
	if err != nil {
		return err
	}
	example := &v1alpha1.WorkerPool{}
	if err := json.Unmarshal(raw, example); err != nil {
		return err
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ordersNamespace}}
	job.Spec.BackoffLimit = new(int32(2))
	job.Spec.Template.Spec = example.Spec.Template.Spec // the worker's image contains the program, and its Pods mount the ledger
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers[0].Command = append([]string{"/ledger-tool"}, args...)
	return a.client.Create(ctx, job)
}

// waitForPool waits until the Queue and the WorkerPool meet a condition.
func (a *poolScenario) waitForPool(ctx context.Context, what string, isMet func(*v1alpha1.Queue, *v1alpha1.WorkerPool) bool) error {
	return a.waitUntil(ctx, what, func(ctx context.Context) (bool, error) {
		queue, pool := &v1alpha1.Queue{}, &v1alpha1.WorkerPool{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: ordersNamespace, Name: "orders"}, queue); err != nil {
			return false, err
		}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: ordersNamespace, Name: "orders"}, pool); err != nil {
			return false, err
		}
		return isMet(queue, pool), nil
	})
}

// followPool shows backlog and workers until the pool has scaled to zero, and starts a rollout while it works.
func (a *poolScenario) followPool(ctx context.Context) error {
	var before *v1alpha1.WorkerPool
	return a.waitForPool(ctx, "the pool to scale to zero", func(_ *v1alpha1.Queue, pool *v1alpha1.WorkerPool) bool {
		a.showProgress(before, pool)
		before = pool
		a.startRollout(ctx, pool)
		s := &pool.Status
		return a.rolloutStarted && s.Replicas == 0 && s.Draining == 0 && s.Backlog != nil && *s.Backlog == 0 && s.CurrentRevision == s.UpdatedRevision
	})
}

func (a *poolScenario) showProgress(before, pool *v1alpha1.WorkerPool) {
	for _, change := range render.PoolChanges(before, pool) {
		a.section.Log("%s", change.Text)
	}
	if pool.Status.Backlog != nil && time.Since(a.sampledAt) >= sampleInterval {
		a.backlogs, a.sampledAt = append(a.backlogs, *pool.Status.Backlog), time.Now()
		a.backlogs = a.backlogs[max(0, len(a.backlogs)-maxSamples):]
	}
	a.section.Draw(render.PoolLoadTable(a.page.Style, []*render.PoolLoad{{Pool: pool, Backlogs: a.backlogs}}).Lines(false))
}

// startRollout changes the version of the workers once, when several are ready. There must be enough jobs left for the
// new workers to prove that they work: a pool without jobs has no workers, and continues the rollout with its next job.
func (a *poolScenario) startRollout(ctx context.Context, pool *v1alpha1.WorkerPool) {
	s := &pool.Status
	if a.rolloutStarted || s.Ready < 2 || s.Backlog == nil || *s.Backlog == 0 {
		return
	}
	const patch = `{"spec":{"version":"2"}}`
	if err := a.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		a.section.Log("%v", err) // retried at the next poll
		return
	}
	a.section.Act("A new version is rolled out while the pool works:",
		fmt.Sprintf("kubectl -n %s patch workerpool orders --type=merge -p '%s'", ordersNamespace, patch))
	a.rolloutStarted = true
}

// verifyLedger verifies the ledger, in which workers record each finished job.
func (a *poolScenario) verifyLedger(ctx context.Context) (result string, err error) {
	if err := a.runLedgerTool(ctx, "verify", "verify", "-run=demo", fmt.Sprintf("-jobs=%d", demoJobCount)); err != nil {
		return "", err
	}
	var verdict verify.LedgerResult
	err = a.waitUntil(ctx, "the verification of the ledger", func(ctx context.Context) (bool, error) {
		output, err := a.readJobLog(ctx, ordersNamespace, "verify")
		_, output, found := strings.Cut(output, "{")
		line, _, _ := strings.Cut(output, "\n")
		return found && json.Unmarshal([]byte("{"+line), &verdict) == nil, err
	})
	if err != nil {
		return "", err
	}
	a.section.Log("the ledger: %s", verdict.String())
	if !verdict.EachDoneOnce() {
		return "", fmt.Errorf("not every job ran exactly once: %+v", verdict)
	}
	if verdict.Revisions < 2 {
		return "", fmt.Errorf("the rollout did not happen while the pool worked: %+v", verdict)
	}
	return fmt.Sprintf("Queue, WorkerPool: each of %d jobs ran exactly once, on %d workers that came from zero, changed their version and went back to zero.",
		verdict.Sent, verdict.Workers), nil
}
