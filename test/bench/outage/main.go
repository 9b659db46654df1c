// Command outage measures how soon the operator reports that a broker is unreachable, and that
// it is reachable again, on a real control plane with simulated nodes and a real NATS server.
//
//	go run ./test/bench/outage                 5 outages with 1 Queue, 5 with 100
//	go run ./test/bench/outage -outages 10
//
// It runs a release build of the operator. In each outage, the broker is killed, so that its connections are not closed, and later restarted
// with its files, while a watch records the changes of each Queue's BrokerReachable condition. During the outage, the number of workers of a
// WorkerPool with a backlog must not change, and a SequentialJob must complete, because it does not use the broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

type environment struct {
	harness.Environment
	queues int
}

func main() {
	outages := 5
	harness.PositiveFlag(&outages, "outages", "number of outages")
	harness.RunOnCluster(func(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
		var missed []error
		for _, queues := range []int{1, 100} {
			env := &environment{Environment: harness.Environment(fmt.Sprintf("bench-outage-%d", queues)), queues: queues}
			missed = append(missed, printReport(env, env.measureOutages(ctx, c, operatorBinary, outages)))
		}
		return errors.Join(missed...)
	}, nil)
}

type outageResult struct {
	// unreachableAfter and reachableAfter are the times until each Queue reported the change.
	unreachableAfter, reachableAfter []time.Duration
	// sequenceDuration is the duration of the SequentialJob that ran during the outage.
	sequenceDuration time.Duration
	// minReplicas and maxReplicas are the bounds of the pool's replicas from before the outage until after it.
	minReplicas, maxReplicas int32
}

func (env *environment) measureOutages(ctx context.Context, c *harness.Cluster, binary string, outages int) (results []outageResult) {
	broker := harness.StartNATS(ctx)
	defer broker.StopAndRemove()
	defer env.DeleteObjects(ctx, c)
	env.createObjects(ctx, c, broker.URL)
	o := startObserver(ctx, c, string(env.Environment))
	operator := env.StartOperator(ctx, binary, c)
	defer operator.Stop()
	harness.Check(env.WaitUntilReconciled(ctx, c, waitTimeout, env.queues, 1))
	producer := harness.Must(harness.ConnectProducer(broker.URL, consumedQueue))
	harness.Check(producer.PublishBurst(ctx, backlogMessages, waitTimeout)) // they stay, because simulated workers process nothing
	producer.CloseConnection()
	for i := range outages {
		r := env.measureOutage(ctx, c, o, broker, i)
		harness.PrintProgress("%d of %d: unreachable after %.2f s, reachable after %.2f s", i+1, outages,
			harness.Quantile(r.unreachableAfter, 1).Seconds(), harness.Quantile(r.reachableAfter, 1).Seconds())
		results = append(results, r)
	}
	return results
}

// measureOutage kills and restarts the broker.
func (env *environment) measureOutage(ctx context.Context, c *harness.Cluster, o *clusterObserver, broker *harness.NATSProcess, i int) (r outageResult) {
	env.waitUntilSteady(ctx, c, o)
	o.resetReplicaBounds()
	killedAt := time.Now()
	broker.Kill()
	r.sequenceDuration = env.runSequentialJob(ctx, c, fmt.Sprintf("during-%d", i))
	r.unreachableAfter = env.waitForCondition(ctx, o, metav1.ConditionFalse, killedAt)
	harness.Check(clock.SleepContext(ctx, minDowntime-time.Since(killedAt)))
	broker.Restart()
	r.reachableAfter = env.waitForCondition(ctx, o, metav1.ConditionTrue, time.Now())
	env.waitUntilSteady(ctx, c, o)
	_, r.minReplicas, r.maxReplicas = o.replicaCounts()
	return r
}

// waitUntilSteady waits until the pool has its metrics and its workers, and then for a random
// time, so that the outage is not synchronized with periodic work of the operator.
func (env *environment) waitUntilSteady(ctx context.Context, c *harness.Cluster, o *clusterObserver) {
	harness.Check(env.WaitUntilReconciled(ctx, c, waitTimeout, env.queues, 1))
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		now, _, _ := o.replicaCounts()
		return now == poolReplicas, nil
	}))
	harness.Check(clock.SleepContext(ctx, 3*time.Second+time.Duration(rand.Int64N(int64(3*time.Second))))) //nolint:gosec // the time is not a secret
}

// waitForCondition waits until each Queue has reported the status of BrokerReachable, and returns how long each took.
func (env *environment) waitForCondition(ctx context.Context, o *clusterObserver, status metav1.ConditionStatus, began time.Time) (took []time.Duration) {
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		took = o.transitionsSince(began, status)
		return len(took) == env.queues, o.WatchError()
	}))
	return took
}

func (env *environment) runSequentialJob(ctx context.Context, c *harness.Cluster, name string) time.Duration {
	began := time.Now()
	sj := env.NewSequentialJob(name, time.Second, "first", "second")
	harness.Check(c.Create(ctx, sj))
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(sj), sj)
		if sj.Status.Phase == v1alpha1.PhaseFailed {
			err = fmt.Errorf("SequentialJob %s failed", name)
		}
		return sj.Status.Phase == v1alpha1.PhaseCompleted, err
	}))
	took := time.Since(began)
	harness.Check(c.Delete(ctx, sj, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	return took
}

// Targets for the time until every Queue reports the state of the broker.
const (
	maxTimeUntilUnreachable = 15 * time.Second
	maxTimeUntilReachable   = 10 * time.Second
)

// printReport prints the results and returns an error if a target is missed. SequentialJobs
// need no target: if one fails, the measurement fails.
func printReport(env *environment, results []outageResult) error {
	var unreachable, reachable, sequences []time.Duration
	isConstant := true
	for _, r := range results {
		unreachable, reachable = append(unreachable, r.unreachableAfter...), append(reachable, r.reachableAfter...)
		sequences = append(sequences, r.sequenceDuration)
		isConstant = isConstant && r.minReplicas == poolReplicas && r.maxReplicas == poolReplicas
	}
	fmt.Printf("\n%d Queues, %d outages of the broker\n", env.queues, len(results))
	w := harness.NewTable("seconds\tp50\tp90\tmax\t")
	harness.PrintQuantiles(w, "from the outage to BrokerReachable=False", "%.2f", unreachable, .5, .9, 1)
	harness.PrintQuantiles(w, "from the restart to BrokerReachable=True", "%.2f", reachable, .5, .9, 1)
	harness.PrintQuantiles(w, "a SequentialJob during the outage", "%.2f", sequences, .5, .9, 1)
	_ = w.Flush() // it writes to standard output
	return errors.Join(
		harness.CheckTarget(fmt.Sprintf("every Queue reports the outage within %s", maxTimeUntilUnreachable), harness.Quantile(unreachable, 1) <= maxTimeUntilUnreachable),
		harness.CheckTarget(fmt.Sprintf("every Queue reports the recovery within %s", maxTimeUntilReachable), harness.Quantile(reachable, 1) <= maxTimeUntilReachable),
		harness.CheckTarget(fmt.Sprintf("the pool always has %d desired replicas", poolReplicas), isConstant),
	)
}

// clusterObserver watches the BrokerReachable conditions of the Queues and the replicas of the pool's Deployments.
type clusterObserver struct {
	harness.Observer

	brokerConditions   map[string]brokerCondition // by Queue
	deploymentReplicas map[string]int32           // by Deployment
	// minReplicas and maxReplicas are the bounds of the total since the last reset.
	minReplicas, maxReplicas int32
}

// brokerCondition is the last observed status of BrokerReachable, and when it was first observed.
type brokerCondition struct {
	status         metav1.ConditionStatus
	transitionTime time.Time
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) *clusterObserver {
	o := &clusterObserver{brokerConditions: map[string]brokerCondition{}, deploymentReplicas: map[string]int32{}}
	o.WatchLists(ctx, c, o.recordEvent, []client.ObjectList{&v1alpha1.QueueList{}, &appsv1.DeploymentList{}}, client.InNamespace(ns))
	return o
}

func (o *clusterObserver) recordEvent(event watch.Event, now time.Time) {
	switch object := event.Object.(type) {
	case *v1alpha1.Queue:
		condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionBrokerReachable)
		if condition != nil && o.brokerConditions[object.Name].status != condition.Status {
			o.brokerConditions[object.Name] = brokerCondition{condition.Status, now}
		}
	case *appsv1.Deployment:
		if object.Labels[workerpool.LabelWorkerPool] == "" {
			return
		}
		o.deploymentReplicas[object.Name] = 0
		if event.Type != watch.Deleted && object.Spec.Replicas != nil {
			o.deploymentReplicas[object.Name] = *object.Spec.Replicas
		}
		o.minReplicas, o.maxReplicas = min(o.minReplicas, o.totalReplicas()), max(o.maxReplicas, o.totalReplicas())
	}
}

func (o *clusterObserver) totalReplicas() (sum int32) {
	for _, replicas := range o.deploymentReplicas {
		sum += replicas
	}
	return sum
}

func (o *clusterObserver) resetReplicaBounds() {
	o.Lock()
	defer o.Unlock()
	o.minReplicas, o.maxReplicas = o.totalReplicas(), o.totalReplicas()
}

// replicaCounts returns the current total of replicas, and its bounds since the last reset.
func (o *clusterObserver) replicaCounts() (now, fewest, most int32) {
	o.Lock()
	defer o.Unlock()
	return o.totalReplicas(), o.minReplicas, o.maxReplicas
}

// transitionsSince returns after how long each Queue changed to the status, for those that currently have it.
func (o *clusterObserver) transitionsSince(began time.Time, status metav1.ConditionStatus) (took []time.Duration) {
	o.Lock()
	defer o.Unlock()
	for _, t := range o.brokerConditions {
		if t.status == status {
			took = append(took, t.transitionTime.Sub(began))
		}
	}
	return took
}

const (
	// consumedQueue is the queue of the WorkerPool.
	consumedQueue = "orders-0000"
	// poolReplicas is the pool's maxReplicas. backlogMessages is more than that number of workers can process.
	poolReplicas, backlogMessages = 5, 1000
	// minDowntime is the shortest outage: after that time, the interval between reconnects no longer grows.
	minDowntime = 20 * time.Second
	// waitTimeout bounds every wait.
	waitTimeout = 2 * time.Minute
)

func (env *environment) createObjects(ctx context.Context, c *harness.Cluster, url string) {
	harness.Check(env.CreateNamespace(ctx, c, url))
	harness.Check(harness.CreateAll(ctx, c, env.queues, func(i int) client.Object { return env.NewQueue(fmt.Sprintf("orders-%04d", i)) }))
	wp := env.NewWorkerPool(consumedQueue)
	wp.Spec.Autoscaling.MaxReplicas = poolReplicas
	harness.Check(c.Create(ctx, wp))
}
