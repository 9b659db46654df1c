package scaling

// replicasWithoutStats holds what there is: that nobody can tell what waits says nothing about
// what waits. After the fallback's time there are at least so many as it says.
func replicasWithoutStats(in Observation) replicaTarget {
	n := replicaTarget{in.Replicas, ReasonStatsUnavailable}
	since := in.Memory.MissingSince
	fallback := in.Settings.Fallback
	if fallback != nil && !since.IsZero() && in.Now.Sub(since) >= fallback.After {
		n.raiseTo(min(fallback.Replicas, effectiveMax(in.Settings)), ReasonFallback)
	}
	n.raiseTo(effectiveMin(in.Settings), ReasonMinReplicas)
	return n
}
