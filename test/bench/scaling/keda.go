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
	// freely lets it grow as it wants; otherwise to the double or by 4 Pods every 15 s.
	freely bool
}

const (
	// syncPeriod of the HorizontalPodAutoscaler: a flag of the controller manager, which
	// nobody who deploys a workload sets.
	syncPeriod = 15.0
	// hpaTolerance by which the ratio must differ from 1.
	hpaTolerance = 0.1
)

// keda models KEDA 2 and the HorizontalPodAutoscaler it makes, for an external metric with
// an average value, as their documentation describes them: KEDA's loop wakes from 0 and
// goes to 0, everything between is the autoscaler's. What it leaves out is in their
// favour: a metric takes no time to be read, and a Deployment none to follow.
type keda struct {
	*yard
	kedaSettings
	most       int
	lastActive float64
	// recommendations of the stabilization time.
	recommendations []recommendation
}

type recommendation struct {
	at       float64
	replicas int
}

// runKEDA has the load worked off by what KEDA scales.
func runKEDA(y *yard, most int32, settings kedaSettings) result {
	k := &keda{yard: y, kedaSettings: settings, most: int(most)}
	y.every(k.polling, k.polling*y.random.Float64(), k.poll)
	y.every(syncPeriod, syncPeriod*y.random.Float64(), k.sync)
	return y.end()
}

// metric is pending messages and those not acknowledged, as the scaler counts them.
func (k *keda) metric() float64 { return float64(k.waiting.len() + k.inFlight()) }

// poll is KEDA's own loop: between 0 and 1 only.
func (k *keda) poll() {
	if k.metric() > 0 {
		k.lastActive = k.now
	}
	replicas := len(k.serving())
	switch {
	case replicas == 0 && k.metric() > 0:
		k.scale(1)
	case replicas > 0 && k.metric() == 0 && k.now-k.lastActive >= k.cooldown:
		k.scale(0)
	}
}

// sync is the HorizontalPodAutoscaler's loop. It asks KEDA for the metric as it is now.
func (k *keda) sync() {
	current := len(k.serving())
	if current == 0 {
		k.recommendations = nil
		return
	}
	desired := current
	if ratio := k.metric() / (k.threshold * float64(current)); math.Abs(ratio-1) > hpaTolerance {
		desired = int(math.Ceil(k.metric() / k.threshold))
	}
	desired = k.stabilize(min(max(desired, 1), k.most), current)
	if desired > current && !k.freely {
		desired = min(desired, max(2*current, current+4))
	}
	k.scale(desired)
}

// stabilize is the highest recommendation of the stabilization time, if that is not more
// than there are.
func (k *keda) stabilize(desired, current int) int {
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

// scale changes the Deployment. It knows nothing of what Pods are at: those that are not
// ready go first, then any.
func (k *keda) scale(replicas int) {
	serving := k.serving()
	if replicas == len(serving) {
		return
	}
	k.operations++
	if replicas > len(serving) {
		k.create(replicas - len(serving))
		return
	}
	k.random.Shuffle(len(serving), func(i, j int) { serving[i], serving[j] = serving[j], serving[i] })
	slices.SortStableFunc(serving, func(a, b *pod) int { return order(!a.ready, !b.ready) })
	for _, p := range serving[:len(serving)-replicas] {
		k.stop(p)
	}
}

// order puts what is true before what is not.
func order(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	default:
		return 0
	}
}
