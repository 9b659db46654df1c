package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// queueWith returns the Queue mail with settings of its own.
func queueWith(settings v1alpha1.QueueSettings) *v1alpha1.Queue {
	return &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail"}, Spec: v1alpha1.QueueSpec{QueueSettings: settings}}
}

// queueDefault returns the Policy team, whose defaults are the settings.
func queueDefault(settings v1alpha1.QueueSettings) v1alpha1.Policy {
	return newPolicy("team", 0, fromDefault(v1alpha1.PolicyDefaults{QueueSettings: settings}))
}

func TestMaxBackoffIsRaisedToALongerBackoff(t *testing.T) {
	minutes := func(n int) *v1alpha1.Duration { return new(apiDuration(time.Duration(n) * time.Minute)) }
	team := queueDefault(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{MaxBackoff: minutes(2)}})
	for backoff, want := range map[int]sourcedValue{
		1:  {*minutes(2), v1alpha1.FromPolicy, "team"},
		2:  {*minutes(2), v1alpha1.FromPolicy, "team"},
		20: {*minutes(20), v1alpha1.FromSpec, ""},
	} {
		got := EffectiveQueue(queueWith(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Backoff: minutes(backoff)}}), all(t, team))
		require.Equal(t, want, valueWithSource(got.Sources, "retry.maxBackoff", dereference(got.Retry.MaxBackoff)), cmp.AllowUnexported(sourcedValue{}))
	}
}

func TestRateLimitIsReplacedAsAWholeAndLimited(t *testing.T) {
	perSecond := func(limit, burst int32) v1alpha1.RateLimit {
		return v1alpha1.RateLimit{Limit: limit, Per: new(apiDuration(time.Second)), Burst: new(burst)}
	}
	atMost := func(rate int32) func(s *v1alpha1.PolicySpec) {
		return withLimits(v1alpha1.PolicyLimits{MaxRatePerQueue: &rate})
	}
	byDefault := []v1alpha1.Policy{queueDefault(v1alpha1.QueueSettings{RateLimit: new(perSecond(9, 90))})}
	limitedTo := func(rate int32) []v1alpha1.Policy { return []v1alpha1.Policy{newPolicy("team", 0, atMost(rate))} }
	limits := []v1alpha1.Policy{newPolicy("high", 10, atMost(80)), newPolicy("low", 0, atMost(60)), newPolicy("loose", 0, atMost(70))}
	minute := new(apiDuration(time.Minute))
	five, perMinute := &v1alpha1.RateLimit{Limit: 5}, &v1alpha1.RateLimit{Limit: 3000, Per: minute}
	ofSpec := sourcedValue{perSecond(5, 5), v1alpha1.FromSpec, ""}
	wholeMinute := sourcedValue{v1alpha1.RateLimit{Limit: 3000, Per: minute, Burst: new(int32(3000))}, v1alpha1.FromSpec, ""}
	for title, test := range map[string]struct {
		own      *v1alpha1.RateLimit
		policies []v1alpha1.Policy
		want     sourcedValue
	}{
		"no rate limit": {nil, nil, sourcedValue{}},
		"omitted fields default to one second and a burst of the limit":   {five, nil, ofSpec},
		"the spec replaces the whole default":                             {five, byDefault, ofSpec},
		"the default of a Policy applies to a Queue without a rate limit": {nil, byDefault, sourcedValue{perSecond(9, 90), v1alpha1.FromPolicy, "team"}},
		"a limit applies to a Queue without a rate limit":                 {nil, limitedTo(50), sourcedValue{perSecond(50, 50), v1alpha1.FromLimit, "team"}},
		"a rate below the limit is kept":                                  {five, limitedTo(5), ofSpec},
		"a rate per minute is compared as a rate":                         {perMinute, limitedTo(50), wholeMinute},
		"the strictest limit applies regardless of precedence": {
			&v1alpha1.RateLimit{Limit: 5000, Per: minute}, limits, sourcedValue{perSecond(60, 60), v1alpha1.FromLimit, "low"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			got := EffectiveQueue(queueWith(v1alpha1.QueueSettings{RateLimit: test.own}), all(t, test.policies...))
			require.Equal(t, test.want, valueWithSource(got.Sources, "rateLimit", dereference(got.RateLimit)), cmp.AllowUnexported(sourcedValue{}))
		})
	}
}

func TestDeletionActionOfDeadLetters(t *testing.T) {
	moving := func(to string) *v1alpha1.DeadLetter {
		return &v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterMove, MoveToRef: &v1alpha1.LocalReference{Name: to}}
	}
	block, purge := &v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterBlock}, &v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterPurge}
	for title, test := range map[string]struct {
		own, policy, want *v1alpha1.DeadLetter
		from              v1alpha1.ValueSource
	}{
		"the default blocks the deletion":                   {nil, nil, block, v1alpha1.FromDefault},
		"a Policy moves dead letters":                       {&v1alpha1.DeadLetter{AlertThreshold: new(int64(3))}, moving("graveyard"), moving("graveyard"), v1alpha1.FromPolicy},
		"the action of the Queue replaces that of a Policy": {purge, moving("graveyard"), purge, v1alpha1.FromSpec},
		"a Policy moves none of the target Queue":           {nil, moving("mail"), block, v1alpha1.FromDefault},
	} {
		t.Run(title, func(t *testing.T) {
			got := EffectiveQueue(queueWith(v1alpha1.QueueSettings{DeadLetter: test.own}), all(t, queueDefault(v1alpha1.QueueSettings{DeadLetter: test.policy})))
			require.Equal(t, test.want, &v1alpha1.DeadLetter{OnDelete: got.DeadLetter.OnDelete, MoveToRef: got.DeadLetter.MoveToRef})
			require.Equal(t, test.from, valueWithSource(got.Sources, "deadLetter.onDelete", nil).from)
		})
	}
}

func TestBrokerIsTakenFromTheFirstSource(t *testing.T) {
	at := func(secret string) *v1alpha1.Broker {
		b := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		b.URLSecretRef.Name = secret
		return b
	}
	team := queueDefault(v1alpha1.QueueSettings{Broker: at("teams")})
	for title, test := range map[string]struct {
		own      *v1alpha1.Broker
		policies []v1alpha1.Policy
		want     *v1alpha1.Broker
		from     v1alpha1.ValueSource
	}{
		"from the Queue":    {at("own"), []v1alpha1.Policy{team}, at("own"), v1alpha1.FromSpec},
		"from a Policy":     {nil, []v1alpha1.Policy{team}, at("teams"), v1alpha1.FromPolicy},
		"from the operator": {nil, nil, nil, v1alpha1.FromOperator},
		"from the operator if the Policy sets none": {nil, []v1alpha1.Policy{newPolicy("silent", 0)}, nil, v1alpha1.FromOperator},
	} {
		t.Run(title, func(t *testing.T) {
			got := EffectiveQueue(queueWith(v1alpha1.QueueSettings{Broker: test.own}), all(t, test.policies...))
			require.Equal(t, test.want, got.Broker)
			require.Equal(t, test.from, valueWithSource(got.Sources, "broker", nil).from)
		})
	}
}

func TestResultDoesNotDependOnTheOrderOfPoliciesAndDoesNotReferToThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	policies := []v1alpha1.Policy{
		newPolicy("a", 0, fromDefault(v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{
			Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}, Retry: &v1alpha1.Retry{Limit: new(int32(1))},
		}})),
		newPolicy("b", 0, fromDefault(v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Limit: new(int32(2)), Factor: new(v1alpha1.Number("3"))}}})),
		newPolicy("c", 5, withLimits(v1alpha1.PolicyLimits{MaxRatePerQueue: new(int32(3))})),
		newPolicy("d", 5, withLimits(v1alpha1.PolicyLimits{MaxRatePerQueue: new(int32(3))})),
	}
	want := EffectiveQueue(&v1alpha1.Queue{}, all(t, policies...))
	for range 50 {
		r.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		got := EffectiveQueue(&v1alpha1.Queue{}, all(t, policies...))
		require.Equal(t, want, got)
		*got.Retry.Limit, got.Broker.Engine = 99, v1alpha1.EngineAsynq
	}
}

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
