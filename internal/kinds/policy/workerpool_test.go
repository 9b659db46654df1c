package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestDrainSettingsAreMergedFieldByField(t *testing.T) {
	pool := &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{WorkerSettings: v1alpha1.WorkerSettings{Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainSignal}}}}
	team := newPolicy("team", 0, fromDefault(v1alpha1.PolicyDefaults{WorkerSettings: v1alpha1.WorkerSettings{Drain: &v1alpha1.Drain{
		Mode: v1alpha1.DrainSidecar, OnTimeout: v1alpha1.DrainRequeue,
	}}}))
	got := EffectiveWorkerPool(pool, all(t, team))
	want := &v1alpha1.Drain{
		Mode: v1alpha1.DrainSignal, Timeout: new(apiDuration(10 * time.Minute)),
		OnTimeout: v1alpha1.DrainRequeue, TerminationGrace: new(apiDuration(time.Minute)),
	}
	if diff := cmp.Diff(want, got.Drain); diff != "" {
		t.Errorf("it differs (-want, +got):\n%s", diff)
	}
	sources := []v1alpha1.FieldSource{
		{Field: "drain.mode", From: v1alpha1.FromSpec},
		{Field: "drain.timeout", From: v1alpha1.FromDefault},
		{Field: "drain.onTimeout", From: v1alpha1.FromPolicy, Policy: "team"},
		{Field: "drain.terminationGrace", From: v1alpha1.FromDefault},
		{Field: "maxReplicas", From: v1alpha1.FromSpec},
	}
	if diff := cmp.Diff(sources, got.Sources); diff != "" {
		t.Errorf("the sources differ (-want, +got):\n%s", diff)
	}
}

// The status has the same limits as the spec, so a default beyond them could never be stored.
func TestTheDefaultGracePeriodIsAtMostTheLargestOneThatIsAllowed(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second: 61 * time.Second, 24*time.Hour - time.Minute: 24 * time.Hour, 24 * time.Hour: 24 * time.Hour,
	} {
		pool := &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{WorkerSettings: v1alpha1.WorkerSettings{Drain: &v1alpha1.Drain{Timeout: new(apiDuration(timeout))}}}}
		if got := EffectiveWorkerPool(pool, all(t)).Drain.TerminationGrace.Duration.Duration; got != want {
			t.Errorf("timeout %s: the grace period is %s, want %s", timeout, got, want)
		}
	}
}

func TestCircuitBreakerIsMergedFieldByField(t *testing.T) {
	breaking := func(b v1alpha1.CircuitBreaker) func(s *v1alpha1.PolicySpec) {
		return fromDefault(v1alpha1.PolicyDefaults{WorkerSettings: v1alpha1.WorkerSettings{CircuitBreaker: &b}})
	}
	full := func(threshold, samples int32) *v1alpha1.CircuitBreaker {
		return &v1alpha1.CircuitBreaker{
			FailureThresholdPercent: &threshold, Window: new(apiDuration(time.Minute)), MinSamples: &samples,
			Cooldown: new(apiDuration(30 * time.Second)),
		}
	}
	for title, test := range map[string]struct {
		own      *v1alpha1.CircuitBreaker
		policies []v1alpha1.Policy
		want     *v1alpha1.CircuitBreaker
	}{
		"nothing sets a circuit breaker":            {nil, []v1alpha1.Policy{newPolicy("silent", 0)}, nil},
		"an empty circuit breaker has the defaults": {nil, []v1alpha1.Policy{newPolicy("team", 0, breaking(v1alpha1.CircuitBreaker{}))}, full(50, 20)},
		"that of the pool has the defaults too":     {&v1alpha1.CircuitBreaker{}, nil, full(50, 20)},
		"the pool overrides a field of a Policy": {
			&v1alpha1.CircuitBreaker{MinSamples: new(int32(3))},
			[]v1alpha1.Policy{newPolicy("team", 0, breaking(v1alpha1.CircuitBreaker{FailureThresholdPercent: new(int32(10)), MinSamples: new(int32(7))}))},
			full(10, 3),
		},
		"several Policies are merged": {
			nil,
			[]v1alpha1.Policy{
				newPolicy("low", 0, breaking(v1alpha1.CircuitBreaker{FailureThresholdPercent: new(int32(10)), MinSamples: new(int32(7))})),
				newPolicy("high", 1, breaking(v1alpha1.CircuitBreaker{FailureThresholdPercent: new(int32(90))})),
			},
			full(90, 7),
		},
	} {
		t.Run(title, func(t *testing.T) {
			pool := &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{WorkerSettings: v1alpha1.WorkerSettings{CircuitBreaker: test.own}}}
			got := EffectiveWorkerPool(pool, all(t, test.policies...))
			if diff := cmp.Diff(test.want, got.CircuitBreaker); diff != "" {
				t.Errorf("it differs (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestMaxReplicasIsTheStrictestLimit(t *testing.T) {
	for title, test := range map[string]struct {
		spec     v1alpha1.WorkerPoolSpec
		policies []v1alpha1.Policy
		want     sourcedValue
	}{
		"autoscaling.maxReplicas": {
			spec: v1alpha1.WorkerPoolSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 9}}, want: sourcedValue{int32(9), v1alpha1.FromSpec, ""},
		},
		"replicas": {
			spec: v1alpha1.WorkerPoolSpec{Replicas: new(int32(4))}, want: sourcedValue{int32(4), v1alpha1.FromSpec, ""},
		},
		"the strictest limit": {
			spec: v1alpha1.WorkerPoolSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 9}},
			policies: []v1alpha1.Policy{
				newPolicy("a", 9, withLimits(v1alpha1.PolicyLimits{MaxReplicasPerPool: new(int32(7))})),
				newPolicy("b", 0, withLimits(v1alpha1.PolicyLimits{MaxReplicasTotal: new(int32(5))})),
				newPolicy("c", 0, withLimits(v1alpha1.PolicyLimits{MaxReplicasPerPool: new(int32(20))})),
			},
			want: sourcedValue{int32(5), v1alpha1.FromLimit, "b"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			got := EffectiveWorkerPool(&v1alpha1.WorkerPool{Spec: test.spec}, all(t, test.policies...))
			if diff := cmp.Diff(test.want, valueWithSource(got.Sources, "maxReplicas", dereference(got.MaxReplicas)), cmp.AllowUnexported(sourcedValue{})); diff != "" {
				t.Errorf("it differs (-want, +got):\n%s", diff)
			}
		})
	}
}
