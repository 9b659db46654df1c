package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// EffectiveQueue returns the settings in use for a Queue, as a copy: the Policies may belong to a cache. Without a broker, the
// operator's default broker applies.
func EffectiveQueue(q *v1alpha1.Queue, selected *Selection) *v1alpha1.QueueEffective {
	s := &valueSources{}
	brokers := layers[v1alpha1.Broker]{q.Spec.Broker, selected.brokers}
	effective := &v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{
		Broker:     firstSpecified(s, "broker", brokers, func(b *v1alpha1.Broker) *v1alpha1.Broker { return b }).DeepCopy(),
		RateLimit:  effectiveRateLimit(s, q.Spec.RateLimit, selected),
		Retry:      effectiveRetry(s, q.Spec.Retry, selected),
		DeadLetter: effectiveDeadLetter(s, q, selected),
	}}
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
	const backoff, maxBackoff = "retry.backoff", "retry.maxBackoff"
	l := layers[v1alpha1.Retry]{own, selected.retries}
	effective := &v1alpha1.Retry{
		Limit: specifiedOrDefault(s, "retry.limit", l,
			func(r *v1alpha1.Retry) *int32 { return r.Limit }, 4),
		Backoff: specifiedOrDefault(s, backoff, l,
			func(r *v1alpha1.Retry) *v1alpha1.Duration { return r.Backoff }, apiDuration(time.Second)),
		MaxBackoff: specifiedOrDefault(s, maxBackoff, l,
			func(r *v1alpha1.Retry) *v1alpha1.Duration { return r.MaxBackoff }, apiDuration(10*time.Minute)),
		Factor: specifiedOrDefault(s, "retry.factor", l,
			func(r *v1alpha1.Retry) *v1alpha1.Number { return r.Factor }, "2"),
	}
	if effective.Backoff.Duration.Duration > effective.MaxBackoff.Duration.Duration {
		// The two values come from different sources. maxBackoff yields, because backoff must not exceed it.
		from := s.sourceOf(backoff)
		effective.MaxBackoff = effective.Backoff
		s.setSource(maxBackoff, from.From, from.Policy)
	}
	return effective.DeepCopy()
}

func effectiveDeadLetter(s *valueSources, q *v1alpha1.Queue, selected *Selection) *v1alpha1.DeadLetter {
	l := layers[v1alpha1.DeadLetter]{q.Spec.DeadLetter, selected.deadLetters}
	effective := &v1alpha1.DeadLetter{
		MaxEntries: firstSpecified(s, "deadLetter.maxEntries", l,
			func(d *v1alpha1.DeadLetter) *int64 { return d.MaxEntries }),
		Retention: specifiedOrDefault(s, "deadLetter.retention", l,
			func(d *v1alpha1.DeadLetter) *v1alpha1.Duration { return d.Retention }, apiDuration(0)),
		AlertThreshold: specifiedOrDefault(s, "deadLetter.alertThreshold", l,
			func(d *v1alpha1.DeadLetter) *int64 { return d.AlertThreshold }, 1),
	}
	// onDelete and moveToRef come from the same layer. A Policy that moves dead letters to this very Queue does not apply to it.
	deletion := specifiedOrDefault(s, "deadLetter.onDelete", l, func(d *v1alpha1.DeadLetter) *v1alpha1.DeadLetter {
		if d.OnDelete == "" || d.MoveToRef != nil && d.MoveToRef.Name == q.Name {
			return nil
		}
		return d
	}, v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterBlock})
	effective.OnDelete, effective.MoveToRef = deletion.OnDelete, deletion.MoveToRef
	return effective.DeepCopy()
}

// EffectiveWorkerPool returns the settings in use for a WorkerPool, as a copy: the Policies may belong to a cache. Without settings of the
// pool or a Policy, there is no circuit breaker. Workers are limited by the pool's own maximum and the strictest Policy.
func EffectiveWorkerPool(pool *v1alpha1.WorkerPool, selected *Selection) *v1alpha1.WorkerPoolEffective {
	s, effective := &valueSources{}, &v1alpha1.WorkerPoolEffective{}
	drains := layers[v1alpha1.Drain]{pool.Spec.Drain, selected.drains}
	drain := &v1alpha1.Drain{
		Mode: *specifiedOrDefault(s, "drain.mode", drains,
			func(d *v1alpha1.Drain) *v1alpha1.DrainMode { return nilIfZero(d.Mode) }, v1alpha1.DrainHTTP),
		Timeout: specifiedOrDefault(s, "drain.timeout", drains,
			func(d *v1alpha1.Drain) *v1alpha1.Duration { return d.Timeout }, apiDuration(10*time.Minute)),
		OnTimeout: *specifiedOrDefault(s, "drain.onTimeout", drains,
			func(d *v1alpha1.Drain) *v1alpha1.DrainTimeoutAction { return nilIfZero(d.OnTimeout) }, v1alpha1.DrainWait),
	}
	// By default, an evicted worker has as much time to finish as a drained worker. In mode Signal, the grace period of the Pod
	// includes the timeout anyway. With Requeue, a worker is stopped after the timeout, and would otherwise have the timeout
	// twice.
	grace := min(drain.Timeout.Duration.Duration+MinTerminationGrace, maxTerminationGrace)
	if drain.Mode == v1alpha1.DrainSignal || drain.OnTimeout == v1alpha1.DrainRequeue {
		grace = MinTerminationGrace
	}
	drain.TerminationGrace = specifiedOrDefault(s, DrainTerminationGrace, drains,
		func(d *v1alpha1.Drain) *v1alpha1.Duration { return d.TerminationGrace }, apiDuration(grace))
	effective.Drain = drain

	if breakers := (layers[v1alpha1.CircuitBreaker]{pool.Spec.CircuitBreaker, selected.circuitBreakers}); breakers.own != nil || len(breakers.policies) > 0 {
		effective.CircuitBreaker = &v1alpha1.CircuitBreaker{
			FailureThresholdPercent: specifiedOrDefault(s, "circuitBreaker.failureThresholdPercent", breakers,
				func(b *v1alpha1.CircuitBreaker) *int32 { return b.FailureThresholdPercent }, 50),
			Window: specifiedOrDefault(s, "circuitBreaker.window", breakers,
				func(b *v1alpha1.CircuitBreaker) *v1alpha1.Duration { return b.Window }, apiDuration(time.Minute)),
			MinSamples: specifiedOrDefault(s, "circuitBreaker.minSamples", breakers,
				func(b *v1alpha1.CircuitBreaker) *int32 { return b.MinSamples }, 20),
			Cooldown: specifiedOrDefault(s, "circuitBreaker.cooldown", breakers,
				func(b *v1alpha1.CircuitBreaker) *v1alpha1.Duration { return b.Cooldown }, apiDuration(30*time.Second)),
		}
	}

	effective.MaxReplicas = new(ptr.Deref(pool.Spec.Replicas, 0))
	if pool.Spec.Autoscaling != nil {
		effective.MaxReplicas = new(pool.Spec.Autoscaling.MaxReplicas)
	}
	s.setSource("maxReplicas", v1alpha1.FromSpec, "")
	if limit := selected.maxReplicas; limit != nil && limit.value < *effective.MaxReplicas {
		effective.MaxReplicas = new(limit.value)
		s.setSource("maxReplicas", v1alpha1.FromLimit, limit.policy)
	}
	effective.Sources = *s
	return effective.DeepCopy()
}

// DrainTerminationGrace is the name of a field in the sources of effective settings.
const DrainTerminationGrace = "drain.terminationGrace"

// MinTerminationGrace is the smallest default of drain.terminationGrace.
const MinTerminationGrace = time.Minute

// maxTerminationGrace is the largest value of the field. The status has the same limit.
const maxTerminationGrace = 24 * time.Hour

// CheckImages returns an error for each image of a Pod that a Policy does not allow, with the container and the Policy. Every
// Policy with a list must allow every image, including the images of init containers and volumes.
func CheckImages(pod *corev1.PodSpec, selected *Selection) error {
	var errs []error
	for _, rule := range selected.images {
		check := func(kind, name, image string) {
			if image != "" && !slices.ContainsFunc(rule.allowed, func(pattern string) bool { return matchesPattern(pattern, image) }) {
				errs = append(errs, fmt.Errorf("image %q of %s %q is not allowed by Policy %s, which allows: %s",
					image, kind, name, rule.policy, strings.Join(rule.allowed, ", ")))
			}
		}
		for i := range pod.Containers {
			check("container", pod.Containers[i].Name, pod.Containers[i].Image)
		}
		for i := range pod.InitContainers {
			check("init container", pod.InitContainers[i].Name, pod.InitContainers[i].Image)
		}
		for i := range pod.Volumes {
			if source := pod.Volumes[i].Image; source != nil {
				check("volume", pod.Volumes[i].Name, source.Reference)
			}
		}
	}
	return errors.Join(errs...)
}

type imageRule struct {
	allowed []string
	policy  string
}

// matchesPattern reports whether a text matches a pattern, in which * matches any characters.
func matchesPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	rest := text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// valueSources are the sources of the settings computed so far.
type valueSources []v1alpha1.FieldSource

// sourceOf returns the source of a field. It adds a missing source.
func (s *valueSources) sourceOf(field string) *v1alpha1.FieldSource {
	i := slices.IndexFunc(*s, func(source v1alpha1.FieldSource) bool { return source.Field == field })
	if i < 0 {
		*s = append(*s, v1alpha1.FieldSource{Field: field})
		i = len(*s) - 1
	}
	return &(*s)[i]
}

func (s *valueSources) setSource(field string, from v1alpha1.ValueSource, policy string) {
	source := s.sourceOf(field)
	source.From, source.Policy = from, policy
}

// policyLayer contains the settings of a Policy for one field.
type policyLayer[S any] struct {
	settings *S
	policy   string
}

func appendLayer[S any](layers []policyLayer[S], p *v1alpha1.Policy, settings *S) []policyLayer[S] {
	if settings == nil {
		return layers
	}
	return append(layers, policyLayer[S]{settings, p.Name})
}

// layers are the object's own settings, which may be nil, and the settings of Policies in order of precedence.
type layers[S any] struct {
	own      *S
	policies []policyLayer[S]
}

// firstSpecified returns the value of the first layer that sets it; nil if no layer does.
func firstSpecified[S, T any](s *valueSources, field string, l layers[S], value func(*S) *T) *T {
	if l.own != nil {
		if found := value(l.own); found != nil {
			s.setSource(field, v1alpha1.FromSpec, "")
			return found
		}
	}
	for _, p := range l.policies {
		if found := value(p.settings); found != nil {
			s.setSource(field, v1alpha1.FromPolicy, p.policy)
			return found
		}
	}
	return nil
}

// specifiedOrDefault returns the value of the first layer that sets it, or else the default.
func specifiedOrDefault[S, T any](s *valueSources, field string, l layers[S], value func(*S) *T, def T) *T {
	if found := firstSpecified(s, field, l, value); found != nil {
		return found
	}
	s.setSource(field, v1alpha1.FromDefault, "")
	return &def
}

func policyDefaults(p *v1alpha1.Policy) v1alpha1.PolicyDefaults {
	return ptr.Deref(p.Spec.Defaults, v1alpha1.PolicyDefaults{})
}

func policyLimits(p *v1alpha1.Policy) v1alpha1.PolicyLimits {
	return ptr.Deref(p.Spec.Limits, v1alpha1.PolicyLimits{})
}

// nilIfZero returns nil for the zero value, which means that the field is omitted.
func nilIfZero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func apiDuration(d time.Duration) v1alpha1.Duration {
	return v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}
