package policy

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// EffectiveWorkerPool returns the settings in use for a WorkerPool, as a copy: the Policies may belong to a cache.
func EffectiveWorkerPool(pool *v1alpha1.WorkerPool, selected *Selection) *v1alpha1.WorkerPoolEffective {
	s := &valueSources{}
	effective := &v1alpha1.WorkerPoolEffective{
		Drain:          effectiveDrain(s, pool.Spec.Drain, selected),
		CircuitBreaker: effectiveCircuitBreaker(s, selected),
		MaxReplicas:    effectiveMaxReplicas(s, pool, selected),
	}
	effective.Sources = *s
	return effective.DeepCopy()
}

func effectiveDrain(s *valueSources, own *v1alpha1.Drain, selected *Selection) *v1alpha1.Drain {
	l := layers[v1alpha1.Drain]{own, selected.drains}
	effective := &v1alpha1.Drain{
		Mode: *specifiedOrDefault(s, "drain.mode", l,
			func(d *v1alpha1.Drain) *v1alpha1.DrainMode { return nilIfZero(d.Mode) }, v1alpha1.DrainHTTP),
		Timeout: specifiedOrDefault(s, "drain.timeout", l,
			func(d *v1alpha1.Drain) *v1alpha1.Duration { return d.Timeout }, apiDuration(10*time.Minute)),
		OnTimeout: *specifiedOrDefault(s, "drain.onTimeout", l,
			func(d *v1alpha1.Drain) *v1alpha1.DrainTimeoutAction { return nilIfZero(d.OnTimeout) }, v1alpha1.DrainWait),
	}
	// By default, an evicted worker has as much time to finish as a drained worker. In mode Signal, the grace period of the Pod
	// includes the timeout anyway. With Requeue, a worker is stopped after the timeout, and would otherwise have the timeout
	// twice.
	grace := min(effective.Timeout.Duration.Duration+MinTerminationGrace, maxTerminationGrace)
	if effective.Mode == v1alpha1.DrainSignal || effective.OnTimeout == v1alpha1.DrainRequeue {
		grace = MinTerminationGrace
	}
	effective.TerminationGrace = specifiedOrDefault(s, DrainTerminationGrace, l,
		func(d *v1alpha1.Drain) *v1alpha1.Duration { return d.TerminationGrace }, apiDuration(grace))
	return effective.DeepCopy()
}

// DrainTerminationGrace is the name of a field in the sources of effective settings.
const DrainTerminationGrace = "drain.terminationGrace"

// MinTerminationGrace is the smallest default of drain.terminationGrace.
const MinTerminationGrace = time.Minute

// maxTerminationGrace is the largest value of the field. The status has the same limit.
const maxTerminationGrace = 24 * time.Hour

// effectiveCircuitBreaker returns nil unless a Policy sets a circuit breaker.
func effectiveCircuitBreaker(s *valueSources, selected *Selection) *v1alpha1.CircuitBreaker {
	l := layers[v1alpha1.CircuitBreaker]{policies: selected.circuitBreakers}
	if len(l.policies) == 0 {
		return nil
	}
	effective := &v1alpha1.CircuitBreaker{
		FailureThresholdPercent: specifiedOrDefault(s, "circuitBreaker.failureThresholdPercent", l,
			func(b *v1alpha1.CircuitBreaker) *int32 { return b.FailureThresholdPercent }, 50),
		Window: specifiedOrDefault(s, "circuitBreaker.window", l,
			func(b *v1alpha1.CircuitBreaker) *v1alpha1.Duration { return b.Window }, apiDuration(time.Minute)),
		MinSamples: specifiedOrDefault(s, "circuitBreaker.minSamples", l,
			func(b *v1alpha1.CircuitBreaker) *int32 { return b.MinSamples }, 20),
		Cooldown: specifiedOrDefault(s, "circuitBreaker.cooldown", l,
			func(b *v1alpha1.CircuitBreaker) *v1alpha1.Duration { return b.Cooldown }, apiDuration(30*time.Second)),
		HalfOpenProbes: specifiedOrDefault(s, "circuitBreaker.halfOpenProbes", l,
			func(b *v1alpha1.CircuitBreaker) *int32 { return b.HalfOpenProbes }, 1),
	}
	return effective.DeepCopy()
}

// effectiveMaxReplicas returns the pool's own maximum of workers, or the strictest limit if it is lower.
func effectiveMaxReplicas(s *valueSources, pool *v1alpha1.WorkerPool, selected *Selection) *int32 {
	const field = "maxReplicas"
	maximum := ptr.Deref(pool.Spec.Replicas, 0)
	if pool.Spec.Autoscaling != nil {
		maximum = pool.Spec.Autoscaling.MaxReplicas
	}
	s.setSource(field, v1alpha1.FromSpec, "")
	if limit := selected.maxReplicas; limit != nil && limit.value < maximum {
		maximum = limit.value
		s.setSource(field, v1alpha1.FromLimit, limit.policy)
	}
	return &maximum
}
