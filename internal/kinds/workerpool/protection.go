package workerpool

import (
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// AnnotationSafeToEvict on a Pod keeps the cluster autoscaler from removing its node if it is "false".
	AnnotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// AnnotationDoNotDisrupt on a Pod keeps Karpenter from removing its node if it is "true".
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	// AnnotationProtection on a Pod is the time at which its protection was written last.
	AnnotationProtection = v1alpha1.Prefix + "protection"
)

const (
	// protectionInterval is the shortest time between two writes of the protection of a Pod.
	protectionInterval = 10 * time.Second
	// unprotectDelay is how long a worker must be idle before it loses its protection.
	unprotectDelay = 30 * time.Second
)

// Protection is the protection of a worker's Pod from the removal of its node. It is written on the Pod.
type Protection struct {
	// Foreign is true if someone else set the annotations. Then they are not changed.
	Foreign bool
	Active  bool
	// Written is when the protection was written last; zero if never.
	Written time.Time
}

// ProtectionChange is a change to write on a Pod at the time of the decision.
type ProtectionChange struct {
	Worker string
	Active bool
	Time   time.Time
}

// BusyTimes are the times at which workers were last seen busy, by Pod. They are not stored: after a restart
// of the operator, protected workers count as busy until then.
type BusyTimes map[string]time.Time

// planProtections returns which Pods gain or lose their protection, and when workers were busy. A Pod whose
// drain state is written has another version afterwards, so the next decision protects it.
func planProtections(in *Observation, drainStates []DrainState) ([]ProtectionChange, BusyTimes) {
	var changes []ProtectionChange
	busyTimes := BusyTimes{}
	mayBeBusy := silentWorkersMayBeBusy(in)
	for i := range in.Workers {
		w := &in.Workers[i]
		if w.Terminating || w.Protection.Foreign {
			continue
		}
		// Handlers run. A worker that does not answer is busy if messages that no worker reports may exist, but not before it
		// was ready: until then, it takes none.
		hasServed := !w.ReadySince.IsZero() || !w.DrainingSince.IsZero() || w.Protection.Active
		busy := w.Stats == nil && w.Running && hasServed && mayBeBusy || w.Stats != nil && w.Stats.InFlight > 0
		lastBusy, known := in.BusyTimes[w.Name]
		if busy || w.Protection.Active && (!known || lastBusy.After(in.Now)) {
			lastBusy = in.Now
		}
		if !lastBusy.IsZero() {
			busyTimes[w.Name] = lastBusy
		}
		active := busy || w.Protection.Active && in.Now.Sub(lastBusy) < unprotectDelay
		changesDrain := slices.ContainsFunc(drainStates, func(s DrainState) bool { return s.Worker == w.Name })
		mayWrite := in.Now.Sub(w.Protection.Written).Abs() >= protectionInterval // a time in the future is of another clock
		if active != w.Protection.Active && mayWrite && !changesDrain {
			changes = append(changes, ProtectionChange{w.Name, active, in.Now})
		}
	}
	return changes, busyTimes
}

// silentWorkersMayBeBusy reports whether the broker counts messages, or may have some, that no worker
// reports.
func silentWorkersMayBeBusy(in *Observation) bool {
	if in.Stats == nil || !in.Stats.InFlightKnown {
		return true
	}
	reported := int64(0)
	for i := range in.Workers {
		if stats := in.Workers[i].Stats; stats != nil {
			reported += max(stats.InFlight, 0) + max(stats.Prefetched, 0)
		}
	}
	return in.Stats.InFlight > reported
}
