package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

const (
	// admissionPolicyLifetime is how long AdmissionPolicies remembers what it read, so that many objects that start at once cost
	// one read.
	admissionPolicyLifetime = 5 * time.Second
	// admissionPolicyInterval is how often the policies are read if nobody asks, for the metric and for Changes.
	admissionPolicyInterval = 10 * time.Second
)

var admissionPolicyEnforced = metric.NewGaugeVec("yardmaster_admission_policy_enforced",
	"Whether a ValidatingAdmissionPolicy without which no session starts, or no approval counts, is enforced: 1 or 0. Not present while this is unknown.", "policy")

// AdmissionPolicies reads whether the ValidatingAdmissionPolicies on which the operator relies are enforced. Each policy has a
// binding of the same name. A user who may change admission policies can change the expressions too, which AdmissionPolicies does not
// judge.
type AdmissionPolicies struct {
	live  client.Reader
	names []string
	// without is what does not happen while a policy is not enforced, for the log.
	without string
	clock   clock.PassiveClock
	// Changes receives an event when the result of Problem may have changed.
	Changes chan event.GenericEvent

	mu      sync.Mutex
	readAt  time.Time
	problem string
}

// NewAdmissionPolicies returns AdmissionPolicies that requires the policies with these names. Without them, for example, "no session
// starts".
func NewAdmissionPolicies(live client.Reader, names []string, without string) *AdmissionPolicies {
	return &AdmissionPolicies{live: live, names: names, without: without, clock: clock.RealClock{}, Changes: make(chan event.GenericEvent, 1)}
}

// Problem returns why a policy is not enforced, or why this is unknown; empty if all are enforced. The answer is at most
// admissionPolicyLifetime old. An error means that the API server did not answer.
func (p *AdmissionPolicies) Problem(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.readAt.IsZero() && p.clock.Since(p.readAt) < admissionPolicyLifetime {
		return p.problem, nil
	}
	first := ""
	for _, name := range p.names {
		problem, known, err := p.read(ctx, name)
		switch {
		case err != nil || !known:
			admissionPolicyEnforced.DeleteLabelValues(name)
		case problem != "":
			admissionPolicyEnforced.WithLabelValues(name).Set(0)
		default:
			admissionPolicyEnforced.WithLabelValues(name).Set(1)
		}
		if err != nil {
			return "", fmt.Errorf("reading ValidatingAdmissionPolicy %s: %w", name, err)
		}
		if first == "" {
			first = problem
		}
	}
	if log := logf.FromContext(ctx); first != p.problem {
		if first != "" {
			log.Error(nil, "An admission policy is not enforced, so "+p.without, "reason", first)
		} else {
			log.Info("All admission policies are enforced again without which " + p.without)
		}
		select {
		case p.Changes <- event.GenericEvent{Object: &admissionregistrationv1.ValidatingAdmissionPolicy{}}:
		default: // an earlier event was not received yet
		}
	}
	p.readAt, p.problem = p.clock.Now(), first
	return first, nil
}

// read returns why a policy is not enforced. A policy that the operator may not read is unknown.
func (p *AdmissionPolicies) read(ctx context.Context, name string) (problem string, known bool, err error) {
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	for _, object := range []struct {
		client.Object
		title string
	}{{policy, "ValidatingAdmissionPolicy "}, {binding, "ValidatingAdmissionPolicyBinding "}} {
		switch err := p.live.Get(ctx, types.NamespacedName{Name: name}, object.Object); {
		case apierrors.IsNotFound(err):
			return object.title + name + " does not exist", true, nil
		case apierrors.IsForbidden(err):
			return object.title + name + " is unknown: " + err.Error(), false, nil
		case err != nil:
			return "", false, err
		}
	}
	switch spec, bound := &policy.Spec, &binding.Spec; {
	case spec.FailurePolicy != nil && *spec.FailurePolicy != admissionregistrationv1.Fail:
		return "ValidatingAdmissionPolicy " + name + " admits requests that it cannot evaluate: its failurePolicy is not Fail", true, nil
	case len(spec.Validations) == 0:
		return "ValidatingAdmissionPolicy " + name + " validates nothing", true, nil
	case bound.PolicyName != name:
		return "ValidatingAdmissionPolicyBinding " + name + " binds another policy", true, nil
	case !slices.Contains(bound.ValidationActions, admissionregistrationv1.Deny):
		return "ValidatingAdmissionPolicyBinding " + name + " denies nothing: its validationActions lack Deny", true, nil
	case bound.MatchResources != nil:
		return "ValidatingAdmissionPolicyBinding " + name + " has matchResources, so that the policy does not apply to all objects", true, nil
	}
	return "", true, nil
}

// Start keeps the metric and Changes current until ctx ends. It implements manager.Runnable.
func (p *AdmissionPolicies) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if _, err := p.Problem(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Info("Reading admission policies failed and is tried again", "error", err.Error())
		}
	}, admissionPolicyInterval)
	return nil
}
