// Command reaction measures how soon a WorkerPool at zero scales up, on a real control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/reaction                         20 trials with 5,000 messages
//	go run ./test/bench/reaction -trials 100 -jobs 1     100 trials with one message
//
// It runs a release build of the operator. Each trial publishes messages as fast as the broker accepts them, and measures the time from
// before the first message until two watches show replicas in the pool's Deployment and its first Pod. Then the queue is purged, because
// simulated Pods process nothing, and the pool scales to zero by its own rules before the next trial. Other pools stay idle during the
// benchmark.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

type environment struct {
	harness.Environment
	trials, burstMessages, idlePools int
}

func main() {
	env := &environment{Environment: "bench-reaction", trials: 20, burstMessages: 5000}
	harness.PositiveFlag(&env.trials, "trials", "number of trials")
	harness.PositiveFlag(&env.burstMessages, "jobs", "number of messages in a trial")
	flag.IntVar(&env.idlePools, "idle-pools", 9, "number of other pools, which are idle")
	harness.RunOnCluster(env.measureReactions, nil)
}

func (env *environment) measureReactions(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	nats := harness.StartNATS(ctx)
	defer nats.StopAndRemove()
	defer env.DeleteObjects(ctx, c)
	env.createObjects(ctx, c, nats.URL)
	operator := env.StartOperator(ctx, operatorBinary, c)
	defer operator.Stop()
	harness.Check(env.WaitUntilReconciled(ctx, c, waitTimeout, 1+env.idlePools, 1+env.idlePools))
	p := harness.Must(harness.ConnectProducer(nats.URL, measuredQueue))
	defer p.CloseConnection()
	o := startObserver(ctx, c, string(env.Environment))
	var results []trialResult
	for trial := range env.trials {
		one := env.measureTrial(ctx, c, o, p)
		harness.PrintProgress("%d of %d: replicas after %.3f s, a Pod after %.3f s", trial+1, env.trials, one.timeToReplicas.Seconds(), one.timeToPod.Seconds())
		results = append(results, one)
	}
	return printReport(env, results)
}

// trialResult is the result of one trial. All times count from before the first message was published.
type trialResult struct {
	publishDuration           time.Duration // until the broker has all messages
	timeToReplicas, timeToPod time.Duration
}

// measureTrial waits until the pool is idle, publishes a burst, and waits until the pool has replicas and a Pod.
func (env *environment) measureTrial(ctx context.Context, c *harness.Cluster, o *poolObserver, p *harness.Producer) (r trialResult) {
	env.waitUntilIdle(ctx, c)
	// A random time keeps the trial from being synchronized with periodic work of the operator.
	pause := time.Second + time.Duration(rand.Int64N(int64(4*time.Second))) //nolint:gosec // the time is not a secret
	harness.Check(clock.SleepContext(ctx, pause))
	o.resetTimes()
	startedAt := time.Now()
	harness.Check(p.PublishBurst(ctx, env.burstMessages, waitTimeout))
	r.publishDuration = time.Since(startedAt)
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		replicasTime, podTime, complete := o.reactionTimes()
		r.timeToReplicas, r.timeToPod = replicasTime.Sub(startedAt), podTime.Sub(startedAt)
		return complete, o.WatchError()
	}))
	harness.Check(harness.Must(p.QueueStream(ctx)).Purge(ctx))
	return r
}

type poolObserver struct {
	harness.Observer

	// replicasTime and podTime are when the first replicas and the first Pod were observed since the last reset.
	replicasTime, podTime time.Time
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) *poolObserver {
	o := &poolObserver{}
	o.WatchLists(ctx, c, o.recordEvent, []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}},
		client.InNamespace(ns), client.MatchingLabels{workerpool.LabelWorkerPool: measuredQueue})
	return o
}

func (o *poolObserver) recordEvent(event watch.Event, now time.Time) {
	switch object := event.Object.(type) {
	case *appsv1.Deployment:
		if o.replicasTime.IsZero() && event.Type != watch.Deleted && object.Spec.Replicas != nil && *object.Spec.Replicas > 0 {
			o.replicasTime = now
		}
	case *corev1.Pod:
		if o.podTime.IsZero() && event.Type == watch.Added {
			o.podTime = now
		}
	}
}

func (o *poolObserver) resetTimes() {
	o.Lock()
	defer o.Unlock()
	o.replicasTime, o.podTime = time.Time{}, time.Time{}
}

// reactionTimes returns the observed times. Complete is true once both have been observed.
func (o *poolObserver) reactionTimes() (replicasTime, podTime time.Time, complete bool) {
	o.Lock()
	defer o.Unlock()
	return o.replicasTime, o.podTime, !o.replicasTime.IsZero() && !o.podTime.IsZero()
}

const (
	// measuredQueue is the name of the Queue and of the WorkerPool that are measured.
	measuredQueue = "orders"
	// waitTimeout bounds every wait.
	waitTimeout = 2 * time.Minute
)

func (env *environment) createObjects(ctx context.Context, c *harness.Cluster, url string) {
	harness.Check(env.CreateNamespace(ctx, c, url))
	queue, pool := env.NewQueue(measuredQueue), env.NewWorkerPool(measuredQueue)
	// A simulated worker has no admin API. The operator removes it after one lease.
	queue.Spec.Lease = newDuration(5 * time.Second)
	// The pool scales to zero quickly. This does not affect how it scales up.
	pool.Spec.Autoscaling.IdleAfter = newDuration(time.Second)
	pool.Spec.Autoscaling.ScaleDown = &v1alpha1.ScaleRule{
		Window: newDuration(0), MaxStep: new(intstr.FromString("100%")), Period: newDuration(time.Second),
	}
	objects := []client.Object{queue, pool}
	for i := range env.idlePools {
		name := fmt.Sprintf("beside-%d", i)
		objects = append(objects, env.NewQueue(name), env.NewWorkerPool(name))
	}
	for _, o := range objects {
		harness.Check(c.Create(ctx, o))
	}
}

func newDuration(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

func (env *environment) waitUntilIdle(ctx context.Context, c client.Reader) {
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		var wp v1alpha1.WorkerPool
		harness.Check(c.Get(ctx, client.ObjectKey{Namespace: string(env.Environment), Name: measuredQueue}, &wp))
		s := &wp.Status
		if s.Desired != 0 || s.Replicas != 0 || s.LastDecision == nil || s.LastDecision.Reason != string(scaling.ReasonIdle) {
			return false, nil
		}
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(string(env.Environment)), client.MatchingLabels{workerpool.LabelWorkerPool: measuredQueue})
		return len(pods.Items) == 0, err
	}))
}

// maxTimeToReplicas is the target for the 99th percentile of the time to the first replicas.
const maxTimeToReplicas = 2 * time.Second

func printReport(env *environment, results []trialResult) error {
	fmt.Printf("\n%d messages to a WorkerPool at zero, %d trials, with %d more idle pools\n", env.burstMessages, len(results), env.idlePools)
	w := harness.NewTable("seconds since the first message\tp50\tp90\tp99\tmax\t")
	row := func(label string, figure func(r *trialResult) time.Duration) (all []time.Duration) {
		for i := range results {
			all = append(all, figure(&results[i]))
		}
		harness.PrintQuantiles(w, label, "%.3f", all, .5, .9, .99, 1)
		return all
	}
	replicas := row("the Deployment has replicas", func(r *trialResult) time.Duration { return r.timeToReplicas })
	row("the first Pod is created", func(r *trialResult) time.Duration { return r.timeToPod })
	row("the broker has all messages", func(r *trialResult) time.Duration { return r.publishDuration })
	_ = w.Flush() // it writes to standard output
	return harness.CheckTarget(fmt.Sprintf("p99 until the Deployment has replicas ≤ %s", maxTimeToReplicas), harness.Quantile(replicas, .99) <= maxTimeToReplicas)
}
