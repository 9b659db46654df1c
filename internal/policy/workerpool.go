package policy

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// WorkerPool is what holds for a WorkerPool.
func WorkerPool(pool *v1alpha1.WorkerPool, selected Selection) *v1alpha1.WorkerPoolEffective {
	s := &sources{}
	effective := &v1alpha1.WorkerPoolEffective{
		Drain:          drain(s, pool.Spec.Drain, selected),
		CircuitBreaker: circuitBreaker(s, selected),
		MaxReplicas:    maxReplicas(s, pool, selected),
	}
	effective.Sources = *s
	return effective
}

func drain(s *sources, own *v1alpha1.Drain, selected Selection) *v1alpha1.Drain {
	spec := orEmpty(own)
	of := func(p *v1alpha1.Policy) *v1alpha1.Drain { return orEmpty(defaults(p).Drain) }
	effective := &v1alpha1.Drain{
		Mode: *pick(s, "drain.mode", unlessZero(spec.Mode), selected,
			func(p *v1alpha1.Policy) *v1alpha1.DrainMode { return unlessZero(of(p).Mode) }, v1alpha1.DrainHTTP),
		Timeout: pick(s, "drain.timeout", spec.Timeout, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Timeout }, lasting(10*time.Minute)),
		OnTimeout: *pick(s, "drain.onTimeout", unlessZero(spec.OnTimeout), selected,
			func(p *v1alpha1.Policy) *v1alpha1.DrainTimeoutAction { return unlessZero(of(p).OnTimeout) }, v1alpha1.DrainWait),
		TerminationGrace: pick(s, "drain.terminationGrace", spec.TerminationGrace, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).TerminationGrace }, lasting(time.Minute)),
	}
	return effective.DeepCopy()
}

// circuitBreaker is none, unless a Policy has one.
func circuitBreaker(s *sources, selected Selection) *v1alpha1.CircuitBreaker {
	wanted := false
	for _, p := range selected {
		wanted = wanted || p.Spec.CircuitBreaker != nil
	}
	if !wanted {
		return nil
	}
	of := func(p *v1alpha1.Policy) *v1alpha1.CircuitBreaker { return orEmpty(p.Spec.CircuitBreaker) }
	effective := &v1alpha1.CircuitBreaker{
		FailureThresholdPercent: pick(s, "circuitBreaker.failureThresholdPercent", nil, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).FailureThresholdPercent }, 50),
		Window: pick(s, "circuitBreaker.window", nil, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Window }, lasting(time.Minute)),
		MinSamples: pick(s, "circuitBreaker.minSamples", nil, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).MinSamples }, 20),
		Cooldown: pick(s, "circuitBreaker.cooldown", nil, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Cooldown }, lasting(30*time.Second)),
		HalfOpenProbes: pick(s, "circuitBreaker.halfOpenProbes", nil, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).HalfOpenProbes }, 1),
	}
	return effective.DeepCopy()
}

// maxReplicas is what the pool asks for, or the strictest limit.
func maxReplicas(s *sources, pool *v1alpha1.WorkerPool, selected Selection) *int32 {
	const field = "maxReplicas"
	var most *int32
	switch {
	case pool.Spec.Autoscaling != nil:
		most = new(pool.Spec.Autoscaling.MaxReplicas)
	case pool.Spec.Replicas != nil:
		most = new(*pool.Spec.Replicas)
	default:
		most = new(int32(0))
	}
	s.add(field, v1alpha1.FromSpec, "")
	for _, p := range selected {
		for _, limit := range []*int32{limits(p).MaxReplicasPerPool, limits(p).MaxReplicasTotal} {
			if limit != nil && *limit < *most {
				most = new(*limit)
				s.set(field, v1alpha1.FromLimit, p.Name)
			}
		}
	}
	return most
}
