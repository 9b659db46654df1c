package main

import (
	"math"
	"slices"
)

// kedaSettings are what one sets in a ScaledObject, and what its HorizontalPodAutoscaler
// does with it. Times are in seconds.
type kedaSettings struct {
	// polling is how often KEDA looks whether anything waits, which is all that wakes
	// from 0; cooldown is how long nothing must have before it goes to 0.
	polling, cooldown float64
	// threshold is how many messages make a replica, those in flight included: what the
	// NATS JetStream scaler calls lagThreshold.
	threshold float64
	// stabilization is the time of which the highest recommendation holds.
	stabilization float64
	// unlimitedScaleUp lets it grow as it wants; otherwise to the double or by 4 Pods every 15 s.
	unlimitedScaleUp bool
}

const (
	// autoscalerSyncPeriod of the HorizontalPodAutoscaler: a flag of the controller manager, which
	// nobody who deploys a workload sets.
	autoscalerSyncPeriod = 15.0
	// autoscalerTolerance by which the ratio must differ from 1.
	autoscalerTolerance = 0.1
)

// kedaModel models KEDA 2 and the HorizontalPodAutoscaler it makes, for an external metric with
// an average value, as their documentation describes them: KEDA's loop wakes from 0 and
// goes to 0, everything between is the autoscaler's. What it leaves out is in their
// favour: a metric takes no time to be read, and a Deployment none to follow.
type kedaModel struct {
	*workerSimulation
	kedaSettings
	maxReplicas int
	lastActive  float64
	// recommendations of the stabilization time.
	recommendations []recommendation
}

type recommendation struct {
	at       float64
	replicas int
}

// simulateKEDA has the load worked off by what KEDA scales.
func simulateKEDA(y *workerSimulation, most int32, settings kedaSettings) simulationResult {
	k := &kedaModel{workerSimulation: y, kedaSettings: settings, maxReplicas: int(most)}
	y.scheduleEvery(k.polling, k.polling*y.random.Float64(), k.pollQueue)
	y.scheduleEvery(autoscalerSyncPeriod, autoscalerSyncPeriod*y.random.Float64(), k.syncAutoscaler)
	return y.runToEnd()
}

// queueLength is pending messages and those not acknowledged, as the scaler counts them.
func (k *kedaModel) queueLength() float64 {
	return float64(k.waiting.queuedCount() + k.inFlightCount())
}

// pollQueue is KEDA's own loop: between 0 and 1 only.
func (k *kedaModel) pollQueue() {
	if k.queueLength() > 0 {
		k.lastActive = k.now
	}
	replicas := len(k.servingPods())
	switch {
	case replicas == 0 && k.queueLength() > 0:
		k.scaleDeployment(1)
	case replicas > 0 && k.queueLength() == 0 && k.now-k.lastActive >= k.cooldown:
		k.scaleDeployment(0)
	}
}

// syncAutoscaler is the HorizontalPodAutoscaler's loop. It asks KEDA for the metric as it is now.
func (k *kedaModel) syncAutoscaler() {
	current := len(k.servingPods())
	if current == 0 {
		k.recommendations = nil
		return
	}
	desired := current
	if ratio := k.queueLength() / (k.threshold * float64(current)); math.Abs(ratio-1) > autoscalerTolerance {
		desired = int(math.Ceil(k.queueLength() / k.threshold))
	}
	desired = k.stabilizedReplicas(min(max(desired, 1), k.maxReplicas), current)
	if desired > current && !k.unlimitedScaleUp {
		desired = min(desired, max(2*current, current+4))
	}
	k.scaleDeployment(desired)
}

// stabilizedReplicas is the highest recommendation of the stabilization time, if that is not more
// than there are.
func (k *kedaModel) stabilizedReplicas(desired, current int) int {
	k.recommendations = slices.DeleteFunc(k.recommendations, func(r recommendation) bool {
		return r.at < k.now-k.stabilization
	})
	k.recommendations = append(k.recommendations, recommendation{k.now, desired})
	if desired >= current {
		return desired
	}
	highest := desired
	for _, r := range k.recommendations {
		highest = max(highest, r.replicas)
	}
	return min(highest, current)
}

// scaleDeployment changes the Deployment. It knows nothing of what Pods are at: those that are not
// ready go first, then any.
func (k *kedaModel) scaleDeployment(replicas int) {
	serving := k.servingPods()
	if replicas == len(serving) {
		return
	}
	k.scaleOperations++
	if replicas > len(serving) {
		k.createPods(replicas - len(serving))
		return
	}
	k.random.Shuffle(len(serving), func(i, j int) { serving[i], serving[j] = serving[j], serving[i] })
	slices.SortStableFunc(serving, func(a, b *simulatedPod) int { return compareTrueFirst(!a.ready, !b.ready) })
	for _, p := range serving[:len(serving)-replicas] {
		k.stopPod(p)
	}
}

// compareTrueFirst puts what is true before what is not.
func compareTrueFirst(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	default:
		return 0
	}
}
