package main

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// clusterObserver watches the BrokerReachable conditions of the Queues and the replicas of the pool's Deployments.
type clusterObserver struct {
	mu                 sync.Mutex
	brokerConditions   map[string]brokerCondition // by Queue
	deploymentReplicas map[string]int32           // by Deployment
	// minReplicas and maxReplicas are the bounds of the total since the last reset.
	minReplicas, maxReplicas int32
	err                      error
}

// brokerCondition is the last observed status of BrokerReachable, and when it was first observed.
type brokerCondition struct {
	status         metav1.ConditionStatus
	transitionTime time.Time
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) (*clusterObserver, error) {
	o := &clusterObserver{brokerConditions: map[string]brokerCondition{}, deploymentReplicas: map[string]int32{}}
	return o, harness.WatchLists(ctx, c, o.recordEvent, o.recordWatchEnd, []client.ObjectList{&v1alpha1.QueueList{}, &appsv1.DeploymentList{}}, client.InNamespace(ns))
}

func (o *clusterObserver) recordWatchEnd(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *clusterObserver) recordEvent(event watch.Event, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
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

// resetReplicaBounds restarts the observation of the bounds.
func (o *clusterObserver) resetReplicaBounds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.minReplicas, o.maxReplicas = o.totalReplicas(), o.totalReplicas()
}

// replicaCounts returns the current total of replicas, and its bounds since the last reset.
func (o *clusterObserver) replicaCounts() (now, fewest, most int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.totalReplicas(), o.minReplicas, o.maxReplicas
}

// transitionsSince returns after how long each Queue changed to the status, for those that currently have it.
func (o *clusterObserver) transitionsSince(began time.Time, status metav1.ConditionStatus) (took []time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.brokerConditions {
		if t.status == status {
			took = append(took, t.transitionTime.Sub(began))
		}
	}
	return took, o.err
}
