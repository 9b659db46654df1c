package policy

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// EffectiveQueue returns the settings in use for a Queue. Without a broker, the operator's default
// broker applies.
func EffectiveQueue(q *v1alpha1.Queue, selected Selection) *v1alpha1.QueueEffective {
	s := &valueSources{}
	effective := &v1alpha1.QueueEffective{
		Broker: firstSpecified(s, "broker", q.Spec.Broker, selected, func(p *v1alpha1.Policy) *v1alpha1.Broker {
			return policyDefaults(p).Broker
		}).DeepCopy(),
		RateLimit:  effectiveRateLimit(s, q.Spec.RateLimit, selected),
		Retry:      effectiveRetry(s, q.Spec.Retry, selected),
		DeadLetter: effectiveDeadLetter(s, q, selected),
	}
	if effective.Broker == nil {
		s.addSource("broker", v1alpha1.FromOperator, "")
	}
	effective.Sources = *s
	return effective
}

// effectiveRateLimit takes the rate limit as a whole, because its fields only make sense together,
// and then applies the limits of Policies.
func effectiveRateLimit(s *valueSources, own *v1alpha1.RateLimit, selected Selection) *v1alpha1.RateLimit {
	limit := firstSpecified(s, "rateLimit", own, selected, func(p *v1alpha1.Policy) *v1alpha1.RateLimit {
		return policyDefaults(p).RateLimit
	}).DeepCopy()
	if limit != nil {
		if limit.Per == nil {
			limit.Per = new(apiDuration(time.Second))
		}
		if limit.Burst == nil {
			limit.Burst = new(limit.Limit)
		}
	}
	for _, p := range selected {
		maxRate := policyLimits(p).MaxRatePerQueue
		if maxRate == nil || limit != nil && float64(limit.Limit) <= float64(*maxRate)*limit.Per.Seconds() {
			continue
		}
		limit = &v1alpha1.RateLimit{Limit: *maxRate, Per: new(apiDuration(time.Second)), Burst: new(*maxRate)}
		s.replaceSource("rateLimit", v1alpha1.FromLimit, p.Name)
	}
	return limit
}

func effectiveRetry(s *valueSources, own *v1alpha1.Retry, selected Selection) *v1alpha1.Retry {
	spec := orEmpty(own)
	of := func(p *v1alpha1.Policy) *v1alpha1.Retry { return orEmpty(policyDefaults(p).Retry) }
	const initialDelay, maxDelay = "retry.initialDelay", "retry.maxDelay"
	effective := &v1alpha1.Retry{
		MaxAttempts: specifiedOrDefault(s, "retry.maxAttempts", spec.MaxAttempts, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).MaxAttempts }, 5),
		InitialDelay: specifiedOrDefault(s, initialDelay, spec.InitialDelay, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).InitialDelay }, apiDuration(time.Second)),
		MaxDelay: specifiedOrDefault(s, maxDelay, spec.MaxDelay, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).MaxDelay }, apiDuration(10*time.Minute)),
		MultiplierPercent: specifiedOrDefault(s, "retry.multiplierPercent", spec.MultiplierPercent, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).MultiplierPercent }, 200),
		JitterPercent: specifiedOrDefault(s, "retry.jitterPercent", spec.JitterPercent, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).JitterPercent }, 20),
	}
	if effective.InitialDelay.Duration.Duration > effective.MaxDelay.Duration.Duration {
		// The two values come from different sources. maxDelay yields, because initialDelay must
		// not exceed it.
		from := s.sourceOf(initialDelay)
		effective.MaxDelay = new(*effective.InitialDelay)
		s.replaceSource(maxDelay, from.From, from.Policy)
	}
	return effective.DeepCopy()
}

func effectiveDeadLetter(s *valueSources, q *v1alpha1.Queue, selected Selection) *v1alpha1.DeadLetter {
	spec := orEmpty(q.Spec.DeadLetter)
	of := func(p *v1alpha1.Policy) *v1alpha1.DeadLetter { return orEmpty(policyDefaults(p).DeadLetter) }
	effective := &v1alpha1.DeadLetter{
		Enabled: specifiedOrDefault(s, "deadLetter.enabled", spec.Enabled, selected,
			func(p *v1alpha1.Policy) *bool { return of(p).Enabled }, true),
		MaxEntries: specifiedOrDefault(s, "deadLetter.maxEntries", spec.MaxEntries, selected,
			func(p *v1alpha1.Policy) *int64 { return of(p).MaxEntries }, 0),
		Retention: specifiedOrDefault(s, "deadLetter.retention", spec.Retention, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Retention }, apiDuration(0)),
		AlertThreshold: specifiedOrDefault(s, "deadLetter.alertThreshold", spec.AlertThreshold, selected,
			func(p *v1alpha1.Policy) *int64 { return of(p).AlertThreshold }, 1),
	}
	setDeletionAction(s, q, spec, selected, effective)
	return effective.DeepCopy()
}

// setDeletionAction sets onDelete and moveTo from the same source. A Policy that moves dead
// letters to this very Queue does not apply to it.
func setDeletionAction(s *valueSources, q *v1alpha1.Queue, spec *v1alpha1.DeadLetter, selected Selection, effective *v1alpha1.DeadLetter) {
	choice := specifiedOrDefault(s, "deadLetter.onDelete", nilIfNoAction(spec), selected, func(p *v1alpha1.Policy) *v1alpha1.DeadLetter {
		action := nilIfNoAction(orEmpty(policyDefaults(p).DeadLetter))
		if action != nil && action.MoveTo == q.Name {
			return nil
		}
		return action
	}, v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterBlock})
	effective.OnDelete, effective.MoveTo = choice.OnDelete, choice.MoveTo
}

// nilIfNoAction returns nil if onDelete is omitted.
func nilIfNoAction(d *v1alpha1.DeadLetter) *v1alpha1.DeadLetter {
	if d.OnDelete == "" {
		return nil
	}
	return d
}
