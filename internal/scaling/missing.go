package scaling

// replicasWithoutStats keeps the number of workers, because an unknown backlog is not an empty
// one. After fallback.after it applies the fallback as a lower bound.
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
