package main

import (
	"math"
	"slices"
)

// kedaSettings are the settings of a ScaledObject and of its HorizontalPodAutoscaler. Times are in
// seconds.
type kedaSettings struct {
	// polling is the interval at which KEDA checks the queue to scale from 0 to 1. After the
	// queue was empty for cooldown, KEDA scales to 0.
	polling, cooldown float64
	// threshold is the target number of messages per replica, including those in flight: the
	// lagThreshold of the NATS JetStream scaler.
	threshold float64
	// stabilization is the stabilization window for scaling down.
	stabilization float64
	// unlimitedScaleUp removes the default limit of doubling, or of adding 4 Pods, every 15 s.
	unlimitedScaleUp bool
}

const (
	// autoscalerSyncPeriod is the default of a flag of the controller manager, which users who
	// deploy workloads cannot change.
	autoscalerSyncPeriod = 15.0
	// autoscalerTolerance is the difference of the ratio from 1 up to which nothing is scaled.
	autoscalerTolerance = 0.1
)

// kedaModel models KEDA 2 and its HorizontalPodAutoscaler, for an external metric with an average
// value, according to their documentation: KEDA scales between 0 and 1, and the autoscaler scales
// above 1. The simplifications favor KEDA: reading a metric and changing a Deployment take no time.
type kedaModel struct {
	*workerSimulation
	kedaSettings
	maxReplicas int
	lastActive  float64
	// recommendations of the stabilization window.
	recommendations []recommendation
}

type recommendation struct {
	at       float64
	replicas int
}

// simulateKEDA processes the load with workers that KEDA scales.
func simulateKEDA(y *workerSimulation, most int32, settings kedaSettings) simulationResult {
	k := &kedaModel{workerSimulation: y, kedaSettings: settings, maxReplicas: int(most)}
	y.scheduleEvery(k.polling, k.polling*y.random.Float64(), k.pollQueue)
	y.scheduleEvery(autoscalerSyncPeriod, autoscalerSyncPeriod*y.random.Float64(), k.syncAutoscaler)
	return y.runToEnd()
}

// queueLength returns the number of pending and unacknowledged messages, which KEDA's scaler counts.
func (k *kedaModel) queueLength() float64 {
	return float64(k.waiting.queuedCount() + k.inFlightCount())
}

// pollQueue is one iteration of KEDA's loop, which scales only from and to 0.
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

// syncAutoscaler is one iteration of the HorizontalPodAutoscaler's loop. KEDA returns the current
// metric.
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

// stabilizedReplicas returns the highest recommendation of the stabilization window, but at most the
// current number of replicas when scaling down.
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

// scaleDeployment changes the Deployment. Kubernetes deletes Pods that are not ready first, and then
// others at random, whether they are busy or not.
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

// compareTrueFirst orders true before false.
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
