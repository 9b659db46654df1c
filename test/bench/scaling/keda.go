package main

import (
	"math"
	"slices"
)

// kedaSettings are the settings of a ScaledObject and its HorizontalPodAutoscaler. Times are in seconds.
type kedaSettings struct {
	// polling is the interval at which KEDA checks the queue, to scale from zero. cooldown is
	// the time for which the queue must be empty before KEDA scales to zero.
	polling, cooldown float64
	// threshold is the number of messages per replica, including those in flight: lagThreshold of the NATS JetStream scaler.
	threshold float64
	// stabilization is the window whose highest recommendation applies to a scale-down.
	stabilization float64
	// unlimitedScaleUp disables the limit of a scale-up to twice the replicas, or 4 more, every 15 s.
	unlimitedScaleUp bool
}

const (
	// autoscalerSyncPeriod is the default of a flag of the controller manager, which users of a cluster cannot set.
	autoscalerSyncPeriod = 15.0
	// autoscalerTolerance is the difference between the ratio and 1 up to which nothing changes.
	autoscalerTolerance = 0.1
)

// kedaModel models KEDA 2 and the HorizontalPodAutoscaler that it creates, for an external metric with an average value, as their
// documentation describes them: KEDA scales from zero and to zero, and the autoscaler does the rest. The simplifications are in their favor:
// reading a metric and changing a Deployment take no time.
type kedaModel struct {
	*workerSimulation
	kedaSettings
	maxReplicas int
	lastActive  float64
	// recommendations within the stabilization window.
	recommendations []recommendation
}

type recommendation struct {
	at       float64
	replicas int
}

// queueLength returns the number of waiting messages and messages in flight.
func (k *kedaModel) queueLength() float64 {
	return float64(len(k.waiting) + k.inFlightCount())
}

// pollQueue is KEDA's loop, which only scales between zero and one.
func (k *kedaModel) pollQueue() {
	if k.queueLength() > 0 {
		k.lastActive = k.now
	}
	switch replicas := len(k.servingPods()); {
	case replicas == 0 && k.queueLength() > 0:
		k.scaleDeployment(1)
	case replicas > 0 && k.queueLength() == 0 && k.now-k.lastActive >= k.cooldown:
		k.scaleDeployment(0)
	}
}

// syncAutoscaler is the HorizontalPodAutoscaler's loop. It reads the current metric from KEDA.
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

// stabilizedReplicas returns the highest recommendation of the stabilization window, but at most
// the current replicas. A scale-up is not stabilized.
func (k *kedaModel) stabilizedReplicas(desired, current int) int {
	k.recommendations = slices.DeleteFunc(k.recommendations, func(r recommendation) bool { return r.at < k.now-k.stabilization })
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

// scaleDeployment scales the Deployment. A scale-down stops Pods that are not ready first, and then random ones, whether busy or idle.
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
	slices.SortStableFunc(serving, func(a, b *simulatedPod) int { return a.readiness() - b.readiness() })
	for _, p := range serving[:len(serving)-replicas] {
		k.stopPod(p)
	}
}
