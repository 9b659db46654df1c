package policy

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Queue is what holds for a Queue. Without a broker, that is the operator's own.
func Queue(q *v1alpha1.Queue, selected Selection) *v1alpha1.QueueEffective {
	s := &sources{}
	effective := &v1alpha1.QueueEffective{
		Broker: given(s, "broker", q.Spec.Broker, selected, func(p *v1alpha1.Policy) *v1alpha1.Broker {
			return defaults(p).Broker
		}).DeepCopy(),
		RateLimit:  rateLimit(s, q.Spec.RateLimit, selected),
		Retry:      retry(s, q.Spec.Retry, selected),
		DeadLetter: deadLetter(s, q, selected),
	}
	if effective.Broker == nil {
		s.add("broker", v1alpha1.FromOperator, "")
	}
	effective.Sources = *s
	return effective
}

// rateLimit is taken as a whole, since its fields only make sense together, and then
// limited.
func rateLimit(s *sources, own *v1alpha1.RateLimit, selected Selection) *v1alpha1.RateLimit {
	limit := given(s, "rateLimit", own, selected, func(p *v1alpha1.Policy) *v1alpha1.RateLimit {
		return defaults(p).RateLimit
	}).DeepCopy()
	if limit != nil {
		if limit.Per == nil {
			limit.Per = new(lasting(time.Second))
		}
		if limit.Burst == nil {
			limit.Burst = new(limit.Limit)
		}
	}
	for _, p := range selected {
		most := limits(p).MaxRatePerQueue
		if most == nil || limit != nil && float64(limit.Limit) <= float64(*most)*limit.Per.Seconds() {
			continue
		}
		limit = &v1alpha1.RateLimit{Limit: *most, Per: new(lasting(time.Second)), Burst: new(*most)}
		s.set("rateLimit", v1alpha1.FromLimit, p.Name)
	}
	return limit
}

func retry(s *sources, own *v1alpha1.Retry, selected Selection) *v1alpha1.Retry {
	spec := orEmpty(own)
	of := func(p *v1alpha1.Policy) *v1alpha1.Retry { return orEmpty(defaults(p).Retry) }
	const initialDelay, maxDelay = "retry.initialDelay", "retry.maxDelay"
	effective := &v1alpha1.Retry{
		MaxAttempts: pick(s, "retry.maxAttempts", spec.MaxAttempts, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).MaxAttempts }, 5),
		InitialDelay: pick(s, initialDelay, spec.InitialDelay, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).InitialDelay }, lasting(time.Second)),
		MaxDelay: pick(s, maxDelay, spec.MaxDelay, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).MaxDelay }, lasting(10*time.Minute)),
		MultiplierPercent: pick(s, "retry.multiplierPercent", spec.MultiplierPercent, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).MultiplierPercent }, 200),
		JitterPercent: pick(s, "retry.jitterPercent", spec.JitterPercent, selected,
			func(p *v1alpha1.Policy) *int32 { return of(p).JitterPercent }, 20),
	}
	if effective.InitialDelay.Duration.Duration > effective.MaxDelay.Duration.Duration {
		// Two who did not know of each other. No delay is longer than the greatest, so that
		// one gives way.
		from := s.of(initialDelay)
		effective.MaxDelay = new(*effective.InitialDelay)
		s.set(maxDelay, from.From, from.Policy)
	}
	return effective.DeepCopy()
}

func deadLetter(s *sources, q *v1alpha1.Queue, selected Selection) *v1alpha1.DeadLetter {
	spec := orEmpty(q.Spec.DeadLetter)
	of := func(p *v1alpha1.Policy) *v1alpha1.DeadLetter { return orEmpty(defaults(p).DeadLetter) }
	effective := &v1alpha1.DeadLetter{
		Enabled: pick(s, "deadLetter.enabled", spec.Enabled, selected,
			func(p *v1alpha1.Policy) *bool { return of(p).Enabled }, true),
		MaxEntries: pick(s, "deadLetter.maxEntries", spec.MaxEntries, selected,
			func(p *v1alpha1.Policy) *int64 { return of(p).MaxEntries }, 0),
		Retention: pick(s, "deadLetter.retention", spec.Retention, selected,
			func(p *v1alpha1.Policy) *v1alpha1.Duration { return of(p).Retention }, lasting(0)),
		AlertThreshold: pick(s, "deadLetter.alertThreshold", spec.AlertThreshold, selected,
			func(p *v1alpha1.Policy) *int64 { return of(p).AlertThreshold }, 1),
	}
	onDelete(s, q, spec, selected, effective)
	return effective.DeepCopy()
}

// onDelete and moveTo come from the same place. A Policy that has dead letters moved to
// this very Queue says nothing about its own.
func onDelete(s *sources, q *v1alpha1.Queue, spec *v1alpha1.DeadLetter, selected Selection, effective *v1alpha1.DeadLetter) {
	choice := pick(s, "deadLetter.onDelete", unlessNone(spec), selected, func(p *v1alpha1.Policy) *v1alpha1.DeadLetter {
		action := unlessNone(orEmpty(defaults(p).DeadLetter))
		if action != nil && action.MoveTo == q.Name {
			return nil
		}
		return action
	}, v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterBlock})
	effective.OnDelete, effective.MoveTo = choice.OnDelete, choice.MoveTo
}

// unlessNone is a dead letter that says what becomes of it.
func unlessNone(d *v1alpha1.DeadLetter) *v1alpha1.DeadLetter {
	if d.OnDelete == "" {
		return nil
	}
	return d
}
