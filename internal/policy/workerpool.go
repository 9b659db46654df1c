package policy

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// EffectiveWorkerPool returns the settings in use for a WorkerPool.
func EffectiveWorkerPool(pool *v1alpha1.WorkerPool, selected Selection) *v1alpha1.WorkerPoolEffective {
	s := &valueSources{}
	effective := &v1alpha1.WorkerPoolEffective{
		Drain:          effectiveDrain(s, pool.Spec.Drain, selected),
		CircuitBreaker: effectiveCircuitBreaker(s, selected),
		MaxReplicas:    effectiveMaxReplicas(s, pool, selected),
	}
	effective.Sources = *s
	return effective
}

func effectiveDrain(s *valueSources, own *v1alpha1.Drain, selected Selection) *v1alpha1.Drain {
	spec := orEmpty(own)
	of := func(p *v1alpha1.Policy) *v1alpha1.Drain { return orEmpty(policyDefaults(p).Drain) }
	effective := &v1alpha1.Drain{
		Mode: *specifiedOrDefault(s, "drain.mode", nilIfZero(spec.Mode), selected,
			func(p *v1alpha1.Policy) *v1alpha1.DrainMode { return nilIfZero(of(p).Mode) }, v1alpha1.DrainHTTP),
		Timeout: specifiedOrDefault(s, "drain.timeout", spec.Timeout, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Timeout }, apiDuration(10*time.Minute)),
		OnTimeout: *specifiedOrDefault(s, "drain.onTimeout", nilIfZero(spec.OnTimeout), selected,
			func(p *v1alpha1.Policy) *v1alpha1.DrainTimeoutAction { return nilIfZero(of(p).OnTimeout) }, v1alpha1.DrainWait),
		TerminationGrace: specifiedOrDefault(s, "drain.terminationGrace", spec.TerminationGrace, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).TerminationGrace }, apiDuration(time.Minute)),
	}
	return effective.DeepCopy()
}

// effectiveCircuitBreaker returns nil unless a Policy sets a circuit breaker.
func effectiveCircuitBreaker(s *valueSources, selected Selection) *v1alpha1.CircuitBreaker {
	found := false
	for _, p := range selected {
		found = found || p.Spec.CircuitBreaker != nil
	}
	if !found {
		return nil
	}
	of := func(p *v1alpha1.Policy) *v1alpha1.CircuitBreaker { return orEmpty(p.Spec.CircuitBreaker) }
	effective := &v1alpha1.CircuitBreaker{
		FailureThresholdPercent: specifiedOrDefault(s, "circuitBreaker.failureThresholdPercent", nil, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).FailureThresholdPercent }, 50),
		Window: specifiedOrDefault(s, "circuitBreaker.window", nil, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Window }, apiDuration(time.Minute)),
		MinSamples: specifiedOrDefault(s, "circuitBreaker.minSamples", nil, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).MinSamples }, 20),
		Cooldown: specifiedOrDefault(s, "circuitBreaker.cooldown", nil, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Cooldown }, apiDuration(30*time.Second)),
		HalfOpenProbes: specifiedOrDefault(s, "circuitBreaker.halfOpenProbes", nil, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).HalfOpenProbes }, 1),
	}
	return effective.DeepCopy()
}

// effectiveMaxReplicas returns the number of workers that the pool asks for, or the strictest
// limit.
func effectiveMaxReplicas(s *valueSources, pool *v1alpha1.WorkerPool, selected Selection) *int32 {
	const field = "maxReplicas"
	var maximum *int32
	switch {
	case pool.Spec.Autoscaling != nil:
		maximum = new(pool.Spec.Autoscaling.MaxReplicas)
	case pool.Spec.Replicas != nil:
		maximum = new(*pool.Spec.Replicas)
	default:
		maximum = new(int32(0))
	}
	s.addSource(field, v1alpha1.FromSpec, "")
	for _, p := range selected {
		for _, limit := range []*int32{policyLimits(p).MaxReplicasPerPool, policyLimits(p).MaxReplicasTotal} {
			if limit != nil && *limit < *maximum {
				maximum = new(*limit)
				s.replaceSource(field, v1alpha1.FromLimit, p.Name)
			}
		}
	}
	return maximum
}
