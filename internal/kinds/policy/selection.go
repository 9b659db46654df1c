package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// Selection contains the settings of the Policies that select an object, in order of precedence. A decision reads only the
// specified settings, however many Policies there are.
type Selection struct {
	brokers         []policyLayer[v1alpha1.Broker]
	rateLimits      []policyLayer[v1alpha1.RateLimit]
	retries         []policyLayer[v1alpha1.Retry]
	deadLetters     []policyLayer[v1alpha1.DeadLetter]
	drains          []policyLayer[v1alpha1.Drain]
	circuitBreakers []policyLayer[v1alpha1.CircuitBreaker]
	images          []imageRule
	// maxRate and maxReplicas are the strictest limits of one Queue and of one WorkerPool.
	maxRate, maxReplicas *limit
	totals               []TotalLimit
}

type limit struct {
	value  int32
	policy string
}

// TotalLimit limits the replicas of all WorkerPools that its Policy selects.
type TotalLimit struct {
	Selector    labels.Selector
	MaxReplicas int32
}

// TotalLimits returns the limits that the selected object shares with other objects. The result must not be changed.
func (s *Selection) TotalLimits() []TotalLimit { return s.totals }

// add adds the Policy with the next lower precedence.
func (s *Selection) add(p *v1alpha1.Policy, selector labels.Selector) {
	defaults, limits := policyDefaults(p), policyLimits(p)
	s.brokers = appendLayer(s.brokers, p, defaults.Broker)
	s.rateLimits = appendLayer(s.rateLimits, p, defaults.RateLimit)
	s.retries = appendLayer(s.retries, p, defaults.Retry)
	s.deadLetters = appendLayer(s.deadLetters, p, defaults.DeadLetter)
	s.drains = appendLayer(s.drains, p, defaults.Drain)
	s.circuitBreakers = appendLayer(s.circuitBreakers, p, defaults.CircuitBreaker)
	s.maxRate = stricter(s.maxRate, p, limits.MaxRatePerQueue)
	s.maxReplicas = stricter(s.maxReplicas, p, limits.MaxReplicasPerPool)
	s.maxReplicas = stricter(s.maxReplicas, p, limits.MaxReplicasTotal)
	if len(limits.AllowedImages) > 0 {
		s.images = append(s.images, imageRule{allowed: limits.AllowedImages, policy: p.Name})
	}
	if limits.MaxReplicasTotal != nil {
		s.totals = append(s.totals, TotalLimit{Selector: selector, MaxReplicas: *limits.MaxReplicasTotal})
	}
}

// stricter returns the lower limit; of equal limits the limit with the higher precedence.
func stricter(current *limit, p *v1alpha1.Policy, value *int32) *limit {
	if value == nil || current != nil && current.value <= *value {
		return current
	}
	return &limit{value: *value, policy: p.Name}
}

// Set contains the Policies of a namespace. The zero value is empty.
type Set struct {
	policies []selectivePolicy // in order of precedence
	// all is the selection of all Policies; nil if at least one does not select all objects.
	all *Selection
}

type selectivePolicy struct {
	*v1alpha1.Policy

	selector labels.Selector
	invalid  error // the selector selects nothing
}

// NewSet returns the set of Policies, to which it refers. A Policy with an invalid selector selects nothing, and is part of the
// error.
func NewSet(policies []v1alpha1.Policy) (Set, error) {
	set := Set{policies: make([]selectivePolicy, len(policies))}
	selective := false
	for i := range policies {
		selector, err := SelectorOf(&policies[i])
		set.policies[i] = selectivePolicy{&policies[i], selector, err}
		selective = selective || !selector.Empty()
	}
	slices.SortFunc(set.policies, func(a, b selectivePolicy) int {
		return cmp.Or(cmp.Compare(b.Spec.Precedence, a.Spec.Precedence), cmp.Compare(a.Name, b.Name))
	})
	var errs []error
	for _, p := range set.policies {
		if p.invalid != nil {
			errs = append(errs, fmt.Errorf("policy %s: %w", p.Name, p.invalid))
		}
	}
	if !selective {
		set.all = new(set.Select(nil))
	}
	return set, errors.Join(errs...)
}

// Select returns the settings of the Policies that select an object with these labels.
func (s Set) Select(object map[string]string) Selection {
	if s.all != nil {
		return *s.all
	}
	var selection Selection
	for _, p := range s.policies {
		if p.selector.Matches(labels.Set(object)) {
			selection.add(p.Policy, p.selector)
		}
	}
	return selection
}

// SelectorOf returns the selector of a Policy. A Policy without a selector selects all objects. An invalid selector selects
// nothing, and is an error.
func SelectorOf(p *v1alpha1.Policy) (labels.Selector, error) {
	if decision.IsTooLarge(p, p.Spec) {
		return labels.Nothing(), errors.New("spec: " + decision.TooLargeMessage)
	}
	if p.Spec.Selector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("spec.selector: %w", err)
	}
	return selector, nil
}
