package policy

import (
	"cmp"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// EffectiveQueue returns the settings in use for a Queue, as a copy: the Policies may belong to a cache. Without a broker, the
// operator's default broker applies.
func EffectiveQueue(q *v1alpha1.Queue, selected *Selection) *v1alpha1.QueueEffective {
	s := &valueSources{}
	brokers := layers[v1alpha1.Broker]{q.Spec.Broker, selected.brokers}
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

// effectiveRateLimit takes the rate limit as a whole, because its fields only make sense together, and then applies the limits
// of Policies.
func effectiveRateLimit(s *valueSources, own *v1alpha1.RateLimit, selected *Selection) *v1alpha1.RateLimit {
	const field = "rateLimit"
	l := layers[v1alpha1.RateLimit]{own, selected.rateLimits}
	limit := firstSpecified(s, field, l, func(r *v1alpha1.RateLimit) *v1alpha1.RateLimit { return r }).DeepCopy()
	if limit != nil {
		limit.Per = cmp.Or(limit.Per, new(apiDuration(time.Second)))
		limit.Burst = cmp.Or(limit.Burst, new(limit.Limit))
	}
	maximum := selected.maxRate
	if maximum == nil || limit != nil && float64(limit.Limit) <= float64(maximum.value)*limit.Per.Seconds() {
		return limit
	}
	s.setSource(field, v1alpha1.FromLimit, maximum.policy)
	return &v1alpha1.RateLimit{Limit: maximum.value, Per: new(apiDuration(time.Second)), Burst: new(maximum.value)}
}

func effectiveRetry(s *valueSources, own *v1alpha1.Retry, selected *Selection) *v1alpha1.Retry {
	const initialDelay, maxDelay = "retry.initialDelay", "retry.maxDelay"
	l := layers[v1alpha1.Retry]{own, selected.retries}
	effective := &v1alpha1.Retry{
		MaxAttempts: specifiedOrDefault(s, "retry.maxAttempts", l,
			func(r *v1alpha1.Retry) *int32 { return r.MaxAttempts }, 5),
		InitialDelay: specifiedOrDefault(s, initialDelay, l,
			func(r *v1alpha1.Retry) *v1alpha1.Duration { return r.InitialDelay }, apiDuration(time.Second)),
		MaxDelay: specifiedOrDefault(s, maxDelay, l,
			func(r *v1alpha1.Retry) *v1alpha1.Duration { return r.MaxDelay }, apiDuration(10*time.Minute)),
		MultiplierPercent: specifiedOrDefault(s, "retry.multiplierPercent", l,
			func(r *v1alpha1.Retry) *int32 { return r.MultiplierPercent }, 200),
		JitterPercent: specifiedOrDefault(s, "retry.jitterPercent", l,
			func(r *v1alpha1.Retry) *int32 { return r.JitterPercent }, 20),
	}
	if effective.InitialDelay.Duration.Duration > effective.MaxDelay.Duration.Duration {
		// The two values come from different sources. maxDelay yields, because initialDelay must not exceed it.
		from := s.sourceOf(initialDelay)
		effective.MaxDelay = effective.InitialDelay
		s.setSource(maxDelay, from.From, from.Policy)
	}
	return effective.DeepCopy()
}

func effectiveDeadLetter(s *valueSources, q *v1alpha1.Queue, selected *Selection) *v1alpha1.DeadLetter {
	l := layers[v1alpha1.DeadLetter]{q.Spec.DeadLetter, selected.deadLetters}
	effective := &v1alpha1.DeadLetter{
		Enabled: specifiedOrDefault(s, "deadLetter.enabled", l,
			func(d *v1alpha1.DeadLetter) *bool { return d.Enabled }, true),
		MaxEntries: specifiedOrDefault(s, "deadLetter.maxEntries", l,
			func(d *v1alpha1.DeadLetter) *int64 { return d.MaxEntries }, 0),
		Retention: specifiedOrDefault(s, "deadLetter.retention", l,
			func(d *v1alpha1.DeadLetter) *v1alpha1.Duration { return d.Retention }, apiDuration(0)),
		AlertThreshold: specifiedOrDefault(s, "deadLetter.alertThreshold", l,
			func(d *v1alpha1.DeadLetter) *int64 { return d.AlertThreshold }, 1),
	}
	// onDelete and moveTo come from the same layer. A Policy that moves dead letters to this very Queue does not apply to it.
	deletion := specifiedOrDefault(s, "deadLetter.onDelete", l, func(d *v1alpha1.DeadLetter) *v1alpha1.DeadLetter {
		if d.OnDelete == "" || d.MoveTo == q.Name {
			return nil
		}
		return d
	}, v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterBlock})
	effective.OnDelete, effective.MoveTo = deletion.OnDelete, deletion.MoveTo
	return effective.DeepCopy()
}
