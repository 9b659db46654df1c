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
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
)

// The number of jobs in the burst, and how long each takes.
const (
	demoJobCount    = 2000
	demoJobDuration = 400 * time.Millisecond
)

// poolScenario runs the example of a Queue and a WorkerPool.
type poolScenario struct {
	*demoEnvironment

	backlogs       []int64 // one sample per poll
	rolloutStarted bool
}

// runScenario sends a burst of jobs to a pool without workers, starts a rollout while they run,
// and checks that each job ran once.
func (a *poolScenario) runScenario(ctx context.Context) error {
	showState := func(ctx context.Context) {
		a.runKubectl(ctx, "-n", ordersNamespace, "get", "queues,workerpools,deployments,pods", "-o", "wide")
		a.runKubectl(ctx, "-n", ordersNamespace, "events")
	}
	return a.runScenarioSteps(ctx, "Queue and WorkerPool: autoscaling by backlog", showState,
		a.prepareQueue, a.sendJobs, a.followPool, a.verifyLedger, a.showPool)
}

func (a *poolScenario) showPool(ctx context.Context) error {
	a.runKubectl(ctx, "-n", ordersNamespace, "get", "queues,workerpools")
	a.runKubectl(ctx, "-n", ordersNamespace, "events", "--for", "workerpool/orders")
	return nil
}

// prepareQueue deploys a broker and creates the Queue and the WorkerPool.
func (a *poolScenario) prepareQueue(ctx context.Context) error {
	if err := a.runTimed("built the images of NATS, of the example worker and of the example runner", func() error { return a.cluster.LoadExampleImages(ctx) }); err != nil {
		return err
	}
	if err := a.recreateNamespace(ctx, ordersNamespace); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-k", "config/nats"},
		{"-n", "nats", "rollout", "status", "statefulset/nats", "--timeout=120s"},
		{"-n", ordersNamespace, "apply", "-f", "examples/orders"},
	} {
		if err := a.runKubectlQuietly(ctx, args...); err != nil {
			return err
		}
	}
	return a.waitUntil(ctx, "the Queue to be ready", func(queue *v1alpha1.Queue, _ *v1alpha1.WorkerPool) bool {
		return queue.Status.Ready != nil
	})
}

// sendJobs sends the burst of jobs.
func (a *poolScenario) sendJobs(ctx context.Context) error {
	a.screen.PrintLine("\n  The pool has no workers. Sending %d jobs at once, each taking %s:\n", demoJobCount, demoJobDuration)
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

// waitUntil waits until the Queue and the WorkerPool meet a condition.
func (a *poolScenario) waitUntil(ctx context.Context, description string, isMet func(*v1alpha1.Queue, *v1alpha1.WorkerPool) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errors.New("timeout"))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		queue, pool := &v1alpha1.Queue{}, &v1alpha1.WorkerPool{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: ordersNamespace, Name: "orders"}, queue); err != nil {
			return false, nil //nolint:nilerr // retried until the timeout
		}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: ordersNamespace, Name: "orders"}, pool); err != nil {
			return false, nil //nolint:nilerr // retried until the timeout
		}
		return isMet(queue, pool), nil
	})
	if err != nil {
		return fmt.Errorf("%w after %s: waiting for %s", context.Cause(ctx), a.timeout, description)
	}
	return nil
}

// followPool prints backlog and workers until the pool has scaled to zero, and starts a rollout
// while it works.
func (a *poolScenario) followPool(ctx context.Context) error {
	defer a.screen.KeepLines()
	var before *v1alpha1.WorkerPool
	started := time.Now()
	err := a.waitUntil(ctx, "the pool to scale to zero", func(_ *v1alpha1.Queue, pool *v1alpha1.WorkerPool) bool {
		a.printProgress(before, pool, time.Since(started))
		before = pool
		a.startRollout(ctx, pool)
		s := &pool.Status
		return a.rolloutStarted && s.Replicas == 0 && s.Draining == 0 && s.Backlog != nil && *s.Backlog == 0 && s.CurrentRevision == s.UpdatedRevision
	})
	if err == nil {
		a.screen.PrintLine("")
	}
	return err
}

func (a *poolScenario) printProgress(before, pool *v1alpha1.WorkerPool, since time.Duration) {
	if !a.screen.IsTerminal() {
		for _, change := range render.PoolChanges(before, pool) {
			a.screen.PrintLine("  %4s  %s", since.Round(time.Second), change)
		}
		return
	}
	if pool.Status.Backlog != nil {
		a.backlogs = append(a.backlogs, *pool.Status.Backlog)
	}
	a.screen.DrawLines(render.PoolLoadTable(a.screen.Style, []*render.PoolLoad{{Pool: pool, Backlogs: a.backlogs}}).Lines(false))
}

// startRollout changes the version of the workers once, when several are ready.
func (a *poolScenario) startRollout(ctx context.Context, pool *v1alpha1.WorkerPool) {
	s := &pool.Status
	if a.rolloutStarted || s.Ready < 2 || s.Ready < s.Desired || s.Backlog == nil || *s.Backlog == 0 {
		return
	}
	const patch = `{"spec":{"version":"2"}}`
	a.screen.PrintLine("\n  Rolling out a new version while the pool works:\n  $ kubectl -n %s patch workerpool orders --type=merge -p '%s'\n", ordersNamespace, patch)
	if err := a.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		a.screen.PrintLine("  %v", err) // retried at the next poll
		return
	}
	a.rolloutStarted = true
}

// verifyLedger verifies the ledger.
func (a *poolScenario) verifyLedger(ctx context.Context) error {
	if err := a.runLedgerTool(ctx, "verify", "verify", "-run=demo", fmt.Sprintf("-jobs=%d", demoJobCount)); err != nil {
		return err
	}
	var verdict verify.LedgerResult
	err := a.waitUntil(ctx, "the verification of the ledger", func(*v1alpha1.Queue, *v1alpha1.WorkerPool) bool {
		output := a.readJobLog(ctx, "verify")
		_, output, found := strings.Cut(output, "{")
		line, _, _ := strings.Cut(output, "\n")
		return found && json.Unmarshal([]byte("{"+line), &verdict) == nil
	})
	if err != nil {
		return err
	}
	a.screen.PrintLine("  The ledger, in which workers record each finished job: %s", verdict.String())
	if !verdict.EachDoneOnce() {
		return fmt.Errorf("not every job ran exactly once: %+v", verdict)
	}
	if verdict.Revisions < 2 {
		return fmt.Errorf("the rollout did not happen while the pool worked: %+v", verdict)
	}
	a.screen.PrintLine("%s", a.screen.Success(fmt.Sprintf("All %d jobs ran exactly once, during a rollout and scaling from and to zero.", verdict.Sent)))
	return nil
}

// readJobLog returns the log of a Job's Pod, or "" if it cannot be read yet.
func (a *poolScenario) readJobLog(ctx context.Context, job string) string {
	var pods corev1.PodList
	if err := a.client.List(ctx, &pods, client.InNamespace(ordersNamespace), client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil || len(pods.Items) == 0 {
		return ""
	}
	raw, err := a.clientset.CoreV1().Pods(ordersNamespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return ""
	}
	return string(raw)
}
