package scaling

// withoutFigures holds what there is: that nobody can tell what waits says nothing about
// what waits. After the fallback's time there are at least so many as it says.
func withoutFigures(in Input) number {
	n := number{in.Replicas, ReasonNoFigures}
	since := in.Memory.MissingSince
	fallback := in.Policy.Fallback
	if fallback != nil && !since.IsZero() && in.Now.Sub(since) >= fallback.After {
		n.atLeast(min(fallback.Replicas, most(in.Policy)), ReasonFallback)
	}
	n.atLeast(least(in.Policy), ReasonMinReplicas)
	return n
}
