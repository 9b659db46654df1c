package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// The status has the same limits as the spec, so a default beyond them could never be stored.
func TestTheDefaultGracePeriodIsAtMostTheLargestOneThatIsAllowed(t *testing.T) {
	for _, mode := range []v1alpha1.DrainMode{v1alpha1.DrainHTTP, v1alpha1.DrainSidecar, v1alpha1.DrainSignal} {
		for _, onTimeout := range []v1alpha1.DrainTimeoutAction{v1alpha1.DrainWait, v1alpha1.DrainRequeue} {
			for timeout, want := range map[time.Duration]time.Duration{
				time.Second: 61 * time.Second, 24*time.Hour - time.Minute: 24 * time.Hour, 24 * time.Hour: 24 * time.Hour,
			} {
				if mode == v1alpha1.DrainSignal || onTimeout == v1alpha1.DrainRequeue { // the Pod has the timeout anyway
					want = time.Minute
				}
				drain := &v1alpha1.Drain{Mode: mode, OnTimeout: onTimeout, Timeout: new(apiDuration(timeout))}
				pool := &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{WorkerSettings: v1alpha1.WorkerSettings{Drain: drain}}}
				got := EffectiveWorkerPool(pool, all(t)).Drain.TerminationGrace.Duration.Duration
				require.True(t, got == want, "%s, %s, timeout %s: the grace period is %s, want %s", mode, onTimeout, timeout, got, want)
			}
		}
	}
}

func TestMaxReplicasIsTheStrictestLimit(t *testing.T) {
	autoscaled := v1alpha1.WorkerPoolSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 9}}
	fixed := func(replicas int32) v1alpha1.WorkerPoolSpec { return v1alpha1.WorkerPoolSpec{Replicas: &replicas} }
	perPool := func(name string, precedence, replicas int32) v1alpha1.Policy {
		return newPolicy(name, precedence, withLimits(v1alpha1.PolicyLimits{MaxReplicasPerPool: &replicas}))
	}
	total := newPolicy("b", 0, withMaxReplicasTotal(5))
	for title, test := range map[string]struct {
		spec     v1alpha1.WorkerPoolSpec
		policies []v1alpha1.Policy
		want     sourcedValue
	}{
		"autoscaling.maxReplicas":   {autoscaled, nil, sourcedValue{int32(9), v1alpha1.FromSpec, ""}},
		"replicas":                  {fixed(4), nil, sourcedValue{int32(4), v1alpha1.FromSpec, ""}},
		"the strictest limit":       {autoscaled, []v1alpha1.Policy{perPool("a", 9, 7), total, perPool("c", 0, 20)}, sourcedValue{int32(5), v1alpha1.FromLimit, "b"}},
		"the limit of each pool":    {fixed(9), []v1alpha1.Policy{perPool("a", 9, 5), total}, sourcedValue{int32(5), v1alpha1.FromLimit, "a"}},
		"a limit that is not lower": {fixed(5), []v1alpha1.Policy{perPool("a", 0, 5)}, sourcedValue{int32(5), v1alpha1.FromSpec, ""}},
	} {
		t.Run(title, func(t *testing.T) {
			got := EffectiveWorkerPool(&v1alpha1.WorkerPool{Spec: test.spec}, all(t, test.policies...))
			require.Equal(t, test.want, valueWithSource(got.Sources, "maxReplicas", dereference(got.MaxReplicas)), cmp.AllowUnexported(sourcedValue{}))
		})
	}
}

func TestTotalLimitsAreThoseOfTheSelectingPolicies(t *testing.T) {
	set, err := NewSet([]v1alpha1.Policy{
		newPolicy("a", 0, withMaxReplicasTotal(7), withSelector("team", "mail")),
		newPolicy("b", 0, withMaxReplicasTotal(8), withSelector("team", "web")),
		newPolicy("c", 0, withMaxReplicasTotal(9)), newPolicy("d", 0),
	})
	require.NoError(t, err)
	var got []string
	for _, limit := range new(set.Select(map[string]string{"team": "mail"})).TotalLimits() {
		got = append(got, fmt.Sprintf("%s: %d", limit.Selector, limit.MaxReplicas))
	}
	require.Equal(t, []string{"team=mail: 7", ": 9"}, got)
}
