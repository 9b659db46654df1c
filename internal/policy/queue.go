package policy

import (
	"cmp"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// EffectiveQueue returns the settings in use for a Queue, as a copy: the Policies may be those of a
// cache. Without a broker, the operator's default broker applies.
func EffectiveQueue(q *v1alpha1.Queue, selected Selection) *v1alpha1.QueueEffective {
	s := &valueSources{}
	brokers := layersOf(q.Spec.Broker, selected, func(p *v1alpha1.Policy) *v1alpha1.Broker { return policyDefaults(p).Broker })
	effective := &v1alpha1.QueueEffective{
		Broker:     firstSpecified(s, "broker", brokers, func(b *v1alpha1.Broker) *v1alpha1.Broker { return b }).DeepCopy(),
		RateLimit:  effectiveRateLimit(s, q.Spec.RateLimit, selected),
		Retry:      effectiveRetry(s, q.Spec.Retry, selected),
		DeadLetter: effectiveDeadLetter(s, q, selected),
	}
	if effective.Broker == nil {
		s.setSource("broker", v1alpha1.FromOperator, "")
	}
	effective.Sources = *s
	return effective.DeepCopy()
}

// effectiveRateLimit takes the rate limit as a whole, because its fields only make sense together,
// and then applies the limits of Policies.
func effectiveRateLimit(s *valueSources, own *v1alpha1.RateLimit, selected Selection) *v1alpha1.RateLimit {
	const field = "rateLimit"
	layers := layersOf(own, selected, func(p *v1alpha1.Policy) *v1alpha1.RateLimit { return policyDefaults(p).RateLimit })
	limit := firstSpecified(s, field, layers, func(r *v1alpha1.RateLimit) *v1alpha1.RateLimit { return r }).DeepCopy()
	if limit != nil {
		limit.Per = cmp.Or(limit.Per, new(apiDuration(time.Second)))
		limit.Burst = cmp.Or(limit.Burst, new(limit.Limit))
	}
	for _, p := range selected {
		maxRate := policyLimits(p).MaxRatePerQueue
		if maxRate == nil || limit != nil && float64(limit.Limit) <= float64(*maxRate)*limit.Per.Seconds() {
			continue
		}
		limit = &v1alpha1.RateLimit{Limit: *maxRate, Per: new(apiDuration(time.Second)), Burst: new(*maxRate)}
		s.setSource(field, v1alpha1.FromLimit, p.Name)
	}
	return limit
}

func effectiveRetry(s *valueSources, own *v1alpha1.Retry, selected Selection) *v1alpha1.Retry {
	const initialDelay, maxDelay = "retry.initialDelay", "retry.maxDelay"
	layers := layersOf(own, selected, func(p *v1alpha1.Policy) *v1alpha1.Retry { return policyDefaults(p).Retry })
	effective := &v1alpha1.Retry{
		MaxAttempts: specifiedOrDefault(s, "retry.maxAttempts", layers,
			func(r *v1alpha1.Retry) *int32 { return r.MaxAttempts }, 5),
		InitialDelay: specifiedOrDefault(s, initialDelay, layers,
			func(r *v1alpha1.Retry) *v1alpha1.Duration { return r.InitialDelay }, apiDuration(time.Second)),
		MaxDelay: specifiedOrDefault(s, maxDelay, layers,
			func(r *v1alpha1.Retry) *v1alpha1.Duration { return r.MaxDelay }, apiDuration(10*time.Minute)),
		MultiplierPercent: specifiedOrDefault(s, "retry.multiplierPercent", layers,
			func(r *v1alpha1.Retry) *int32 { return r.MultiplierPercent }, 200),
		JitterPercent: specifiedOrDefault(s, "retry.jitterPercent", layers,
			func(r *v1alpha1.Retry) *int32 { return r.JitterPercent }, 20),
	}
	if effective.InitialDelay.Duration.Duration > effective.MaxDelay.Duration.Duration {
		// The two values come from different sources. maxDelay yields, because initialDelay must
		// not exceed it.
		from := s.sourceOf(initialDelay)
		effective.MaxDelay = effective.InitialDelay
		s.setSource(maxDelay, from.From, from.Policy)
	}
	return effective.DeepCopy()
}

func effectiveDeadLetter(s *valueSources, q *v1alpha1.Queue, selected Selection) *v1alpha1.DeadLetter {
	layers := layersOf(q.Spec.DeadLetter, selected, func(p *v1alpha1.Policy) *v1alpha1.DeadLetter { return policyDefaults(p).DeadLetter })
	effective := &v1alpha1.DeadLetter{
		Enabled: specifiedOrDefault(s, "deadLetter.enabled", layers,
			func(d *v1alpha1.DeadLetter) *bool { return d.Enabled }, true),
		MaxEntries: specifiedOrDefault(s, "deadLetter.maxEntries", layers,
			func(d *v1alpha1.DeadLetter) *int64 { return d.MaxEntries }, 0),
		Retention: specifiedOrDefault(s, "deadLetter.retention", layers,
			func(d *v1alpha1.DeadLetter) *v1alpha1.Duration { return d.Retention }, apiDuration(0)),
		AlertThreshold: specifiedOrDefault(s, "deadLetter.alertThreshold", layers,
			func(d *v1alpha1.DeadLetter) *int64 { return d.AlertThreshold }, 1),
	}
	// onDelete and moveTo come from the same layer. A Policy that moves dead letters to this very
	// Queue does not apply to it.
	deletion := specifiedOrDefault(s, "deadLetter.onDelete", layers, func(d *v1alpha1.DeadLetter) *v1alpha1.DeadLetter {
		if d.OnDelete == "" || d.MoveTo == q.Name {
			return nil
		}
		return d
	}, v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterBlock})
	effective.OnDelete, effective.MoveTo = deletion.OnDelete, deletion.MoveTo
	return effective.DeepCopy()
}
