package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

// newPolicy returns a Policy that selects all objects.
func newPolicy(name string, precedence int32, changes ...func(s *v1alpha1.PolicySpec)) v1alpha1.Policy {
	p := v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Precedence = precedence
	for _, change := range changes {
		change(&p.Spec)
	}
	return p
}

func fromDefault(d v1alpha1.PolicyDefaults) func(s *v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Defaults = &d }
}

func withLimits(l v1alpha1.PolicyLimits) func(s *v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Limits = &l }
}

func withSelector(key, value string) func(s *v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) {
		s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

func all(t *testing.T, policies ...v1alpha1.Policy) *Selection {
	t.Helper()
	set := require.Call(NewSet(policies)).Succeeds(t)
	return new(set.Select(nil))
}

type sourcedValue struct {
	value any
	from  v1alpha1.ValueSource
	by    string
}

func valueWithSource(sources []v1alpha1.FieldSource, field string, value any) sourcedValue {
	for _, s := range sources {
		if s.Field == field {
			return sourcedValue{value, s.From, s.Policy}
		}
	}
	return sourcedValue{value: value}
}

func dereference[T any](pointer *T) any {
	if pointer == nil {
		return nil
	}
	return *pointer
}

// settingAt returns the field with a path such as Retry.Limit. It allocates the structs that contain the field.
func settingAt(d *v1alpha1.PolicyDefaults, path string) reflect.Value {
	value := reflect.ValueOf(d).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				value.Set(reflect.New(value.Type().Elem()))
			}
			value = value.Elem()
		}
		value = value.FieldByName(name)
	}
	return value
}

func set(setting reflect.Value, number int) {
	if setting.Kind() == reflect.Pointer {
		setting.Set(reflect.New(setting.Type().Elem()))
		setting = setting.Elem()
	}
	switch {
	case setting.Kind() == reflect.String:
		setting.SetString(fmt.Sprint(number))
	case setting.CanInt():
		setting.SetInt(int64(number))
	default:
		setting.Set(reflect.ValueOf(apiDuration(time.Duration(number) * time.Minute)))
	}
}

func TestEachSettingComesFromTheFirstSourceThatHasIt(t *testing.T) {
	defaults := map[string]any{
		"Retry.Limit": int32(4), "Retry.Backoff": apiDuration(time.Second), "Retry.MaxBackoff": apiDuration(10 * time.Minute), "Retry.Factor": v1alpha1.Number("2"),
		"DeadLetter.MaxEntries": nil, "DeadLetter.Retention": apiDuration(0), "DeadLetter.AlertThreshold": int64(1), "DeadLetter.OnDelete": v1alpha1.DeadLetterBlock,
		"Drain.Mode": v1alpha1.DrainHTTP, "Drain.Timeout": apiDuration(10 * time.Minute), "Drain.OnTimeout": v1alpha1.DrainWait,
		"Drain.TerminationGrace":                 apiDuration(11 * time.Minute),
		"CircuitBreaker.FailureThresholdPercent": int32(50), "CircuitBreaker.Window": apiDuration(time.Minute),
		"CircuitBreaker.MinSamples": int32(20), "CircuitBreaker.Cooldown": apiDuration(30 * time.Second),
	}
	empty := fromDefault(v1alpha1.PolicyDefaults{
		QueueSettings:  v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{}, DeadLetter: &v1alpha1.DeadLetter{}},
		WorkerSettings: v1alpha1.WorkerSettings{Drain: &v1alpha1.Drain{}, CircuitBreaker: &v1alpha1.CircuitBreaker{}},
	})
	for path, byDefault := range defaults {
		parts := strings.Split(path, ".")
		name := strings.ToLower(parts[0][:1]) + parts[0][1:] + "." + strings.ToLower(parts[1][:1]) + parts[1][1:]
		for sources := range 8 { // a bit for each source
			own, high, low := v1alpha1.PolicyDefaults{}, v1alpha1.PolicyDefaults{}, v1alpha1.PolicyDefaults{}
			want := sourcedValue{byDefault, v1alpha1.FromDefault, ""}
			if byDefault == nil {
				want = sourcedValue{}
			}
			for i, layer := range []struct {
				settings *v1alpha1.PolicyDefaults
				from     v1alpha1.ValueSource
				policy   string
			}{{&low, v1alpha1.FromPolicy, "low"}, {&high, v1alpha1.FromPolicy, "high"}, {&own, v1alpha1.FromSpec, ""}} {
				if sources&(1<<i) != 0 {
					set(settingAt(layer.settings, path), i+1)
					want = sourcedValue{reflect.Indirect(settingAt(layer.settings, path)).Interface(), layer.from, layer.policy}
				}
			}
			selected := all(t, newPolicy("high", 9, fromDefault(high)), newPolicy("empty", 5, empty), newPolicy("low", 3, fromDefault(low)), newPolicy("silent", 1))
			q := EffectiveQueue(&v1alpha1.Queue{Spec: v1alpha1.QueueSpec{QueueSettings: own.QueueSettings}}, selected)
			pool := EffectiveWorkerPool(&v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{WorkerSettings: own.WorkerSettings}}, selected)
			effective := v1alpha1.PolicyDefaults{QueueSettings: q.QueueSettings, WorkerSettings: pool.WorkerSettings}
			var value any
			if setting := settingAt(&effective, path); !setting.IsZero() {
				value = reflect.Indirect(setting).Interface()
			}
			got := valueWithSource(append(q.Sources, pool.Sources...), name, value)
			require.True(t, reflect.DeepEqual(got, want), "%s, of the sources %03b: %+v, want %+v", path, sources, got, want)
		}
	}
	breaker := EffectiveWorkerPool(&v1alpha1.WorkerPool{}, all(t, newPolicy("silent", 0))).CircuitBreaker
	require.True(t, breaker == nil, "nothing sets a circuit breaker, but it is %+v", breaker)
}

// namedPolicy returns a Policy whose place in a selection can be read from its list of images.
func namedPolicy(name string, precedence int32, changes ...func(*v1alpha1.PolicySpec)) v1alpha1.Policy {
	return newPolicy(name, precedence, append(changes, withLimits(v1alpha1.PolicyLimits{AllowedImages: []string{"*"}}))...)
}

// selectedNames returns the Policies that select an object with these labels, in order.
func selectedNames(set Set, object map[string]string) string {
	var names []string
	for _, rule := range set.Select(object).images {
		names = append(names, rule.policy)
	}
	return strings.Join(names, " ")
}

func TestPoliciesAreSelectedByLabelsInOrderOfPrecedence(t *testing.T) {
	for title, test := range map[string]struct {
		policies []v1alpha1.Policy
		want     string
	}{
		"a Policy without a selector selects all objects": {[]v1alpha1.Policy{namedPolicy("a", 0)}, "a"},
		"a selector selects by labels":                    {[]v1alpha1.Policy{namedPolicy("a", 0, withSelector("team", "mail")), namedPolicy("b", 0, withSelector("team", "web"))}, "a"},
		"a Policy with a selector beside one without":     {[]v1alpha1.Policy{namedPolicy("a", 0, withSelector("team", "mail")), namedPolicy("c", 0)}, "a c"},
		"the highest precedence comes first":              {[]v1alpha1.Policy{namedPolicy("a", 1), namedPolicy("b", 10), namedPolicy("c", -1)}, "b a c"},
		"equal precedence is ordered by name":             {[]v1alpha1.Policy{namedPolicy("b", 0), namedPolicy("a", 0)}, "a b"},
		"no Policies":                                     {nil, ""},
	} {
		t.Run(title, func(t *testing.T) {
			set := require.Call(NewSet(test.policies)).Succeeds(t)
			require.Equal(t, test.want, selectedNames(set, map[string]string{"team": "mail"}))
		})
	}
}

func TestInvalidSelectorSelectsNothingAndIsReported(t *testing.T) {
	broken := namedPolicy("broken", 5)
	withInvalidSelector(&broken.Spec)
	set, err := NewSet([]v1alpha1.Policy{broken, namedPolicy("fine", 0)})
	require.Equal(t, "fine", selectedNames(set, nil))
	require.ErrorContains(t, err, "policy broken: spec.selector: ")
}

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
	set := require.Call(NewSet([]v1alpha1.Policy{
		newPolicy("a", 0, withMaxReplicasTotal(7), withSelector("team", "mail")),
		newPolicy("b", 0, withMaxReplicasTotal(8), withSelector("team", "web")),
		newPolicy("c", 0, withMaxReplicasTotal(9)), newPolicy("d", 0),
	})).Succeeds(t)
	var got []string
	for _, limit := range new(set.Select(map[string]string{"team": "mail"})).TotalLimits() {
		got = append(got, fmt.Sprintf("%s: %d", limit.Selector, limit.MaxReplicas))
	}
	require.Equal(t, []string{"team=mail: 7", ": 9"}, got)
}

var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func queueWithTeam(team string) v1alpha1.Queue {
	return v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}}
}

func poolWithTeam(team string, replicas int32) v1alpha1.WorkerPool {
	return v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}, Status: v1alpha1.WorkerPoolStatus{WorkerCounts: v1alpha1.WorkerCounts{Replicas: replicas}},
	}
}

func withInvalidSelector(s *v1alpha1.PolicySpec) {
	s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}
}

func withMaxReplicasTotal(replicas int32) func(*v1alpha1.PolicySpec) {
	return withLimits(v1alpha1.PolicyLimits{MaxReplicasTotal: &replicas})
}

func missingSecret() *decision.Problem {
	return &decision.Problem{Reason: v1alpha1.ReasonSecretNotFound, Message: `spec.defaults.broker: Secret "nats" not found`}
}

func TestStatusReportsTheSelectionOfThePolicy(t *testing.T) {
	team := withSelector("team", "mail")
	namespace := Observation{
		Objects: NewSelectableObjects(
			[]v1alpha1.Queue{queueWithTeam("mail"), queueWithTeam("web"), queueWithTeam("mail")},
			[]v1alpha1.WorkerPool{poolWithTeam("mail", 3), poolWithTeam("mail", 4), poolWithTeam("web", 9)},
		),
	}
	withoutSecret := namespace
	withoutSecret.BrokerProblem = missingSecret()
	tooLarge := withSelector("team", strings.Repeat("x", decision.MaxSpecBytes))
	one := Observation{Objects: NewSelectableObjects([]v1alpha1.Queue{queueWithTeam("mail")}, nil)}
	none, two, everything, onlyQueue := [3]int32{}, [3]int32{2, 2, 7}, [3]int32{3, 3, 16}, [3]int32{1, 0, 0}
	const withReplicas = "selects 2 Queues and 2 WorkerPools with 7 replicas"
	for title, test := range map[string]struct {
		policy      v1alpha1.Policy
		observation Observation
		selected    [3]int32 // Queues, WorkerPools and replicas
		wantReason  string
		wantMessage string
		wantKstatus status.Status
	}{
		"selected objects are counted":        {newPolicy("a", 0, team), namespace, two, v1alpha1.ReasonReady, withReplicas, status.CurrentStatus},
		"without a selector all are selected": {newPolicy("a", 0), namespace, everything, v1alpha1.ReasonReady, "selects 3 Queues and 3 WorkerPools with 16 replicas", status.CurrentStatus},
		"the use of a budget is reported":     {newPolicy("a", 0, team, withMaxReplicasTotal(10)), namespace, two, v1alpha1.ReasonReady, withReplicas + " of maxReplicasTotal 10", status.CurrentStatus},
		"a budget may be used up":             {newPolicy("a", 0, team, withMaxReplicasTotal(7)), namespace, two, v1alpha1.ReasonReady, withReplicas + " of maxReplicasTotal 7", status.CurrentStatus},
		"an exceeded budget is reported": {
			newPolicy("a", 0, team, withMaxReplicasTotal(5)), namespace, two, v1alpha1.ReasonReady,
			withReplicas + ", which exceeds maxReplicasTotal 5: workers are being drained", status.CurrentStatus,
		},
		"one Queue": {newPolicy("a", 0), one, onlyQueue, v1alpha1.ReasonReady, "selects 1 Queue and 0 WorkerPools", status.CurrentStatus},
		"an empty selection is not a failure": {
			newPolicy("a", 0, withSelector("team", "none")), namespace, none, v1alpha1.ReasonNothingSelected,
			"selects no Queue and no WorkerPool of the namespace", status.CurrentStatus,
		},
		"an invalid selector": {
			newPolicy("a", 0, withInvalidSelector), namespace, none, v1alpha1.ReasonSelectorInvalid,
			`spec.selector: "Like" is not a valid label selector operator; the Policy selects nothing`, status.FailedStatus,
		},
		"a selector that needs too much memory": {
			newPolicy("a", 0, tooLarge), namespace, none, v1alpha1.ReasonSelectorInvalid,
			"spec: " + decision.TooLargeMessage + "; the Policy selects nothing", status.FailedStatus,
		},
		"a missing Secret": {newPolicy("a", 0, team), withoutSecret, two, v1alpha1.ReasonSecretNotFound, missingSecret().Message, status.InProgressStatus},
	} {
		t.Run(title, func(t *testing.T) {
			test.policy.Generation = 4
			test.observation.Policy, test.observation.Now = &test.policy, testTime
			got := Decide(test.observation).Status
			require.Equal(t, 4, got.ObservedGeneration)
			require.Equal(t, test.selected, [3]int32{got.Queues, got.WorkerPools, got.Replicas})
			want := metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: test.wantReason, Message: test.wantMessage,
				ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(testTime),
			}
			if test.wantKstatus != status.CurrentStatus {
				want.Status = metav1.ConditionFalse
			}
			require.Equal(t, &want, meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady))
			test.policy.Status = got
			kstatustest.AssertKstatus(t, &test.policy, test.wantKstatus)
		})
	}
}

func TestTheSameObservationDoesNotChangeTheStatus(t *testing.T) {
	p := newPolicy("a", 0)
	observation := Observation{Policy: &p, Objects: NewSelectableObjects([]v1alpha1.Queue{queueWithTeam("mail")}, nil), Now: testTime}
	p.Status = Decide(observation).Status
	observation.Now = testTime.Add(time.Hour)
	require.Equal(t, p.Status, Decide(observation).Status)
}

func TestAProblemIsReportedByOneEvent(t *testing.T) {
	statusWith := func(ready metav1.ConditionStatus, reason string) v1alpha1.PolicyStatus {
		s := v1alpha1.PolicyStatus{}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason})
		return s
	}
	for title, test := range map[string]struct {
		before  v1alpha1.PolicyStatus
		problem *decision.Problem
		want    int
	}{
		"a new Policy with a problem":          {v1alpha1.PolicyStatus{}, missingSecret(), 1},
		"a problem of a Policy that was ready": {statusWith(metav1.ConditionTrue, v1alpha1.ReasonReady), missingSecret(), 1},
		"an unchanged problem":                 {statusWith(metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound), missingSecret(), 0},
		"another problem":                      {statusWith(metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid), missingSecret(), 1},
		"a resolved problem":                   {statusWith(metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound), nil, 0},
		"no problem":                           {v1alpha1.PolicyStatus{}, nil, 0},
	} {
		t.Run(title, func(t *testing.T) {
			p := newPolicy("a", 0)
			p.Status = test.before
			events := Decide(Observation{Policy: &p, BrokerProblem: test.problem, Now: testTime}).Events
			require.True(t, len(events) == test.want, "events %+v, want %d", events, test.want)
			require.True(t, test.want == 0 || events[0].Reason == v1alpha1.ReasonSecretNotFound, "events %+v", events)
		})
	}
}

func TestSecretsOfADefaultBrokerAreReadAgain(t *testing.T) {
	withBroker := fromDefault(v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{}}})
	for title, test := range map[string]struct {
		policy  v1alpha1.Policy
		problem *decision.Problem
		want    time.Duration
	}{
		"valid Secrets after five minutes":  {newPolicy("a", 0, withBroker), nil, 5 * time.Minute},
		"a missing Secret after 15 seconds": {newPolicy("a", 0, withBroker), missingSecret(), 15 * time.Second},
		"never without a default broker":    {newPolicy("a", 0), nil, 0},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, Decide(Observation{Policy: &test.policy, BrokerProblem: test.problem, Now: testTime}).RequeueAfter)
		})
	}
}

func TestAnInvalidSelectorOfAnyLengthIsReportedInAMessageThatTheAPIServerAccepts(t *testing.T) {
	p := newPolicy("long", 0, withSelector("team", strings.Repeat("long ", 10_000)))
	for _, c := range Decide(Observation{Policy: &p, Now: time.Now()}).Status.Conditions {
		isValid := len(c.Message) <= 32768 && strings.HasPrefix(c.Message, "spec.selector: ")
		require.True(t, isValid, "%s has a message of %d bytes: %.100s", c.Type, len(c.Message), c.Message)
	}
}

func TestEachPolicyMustAllowEachImage(t *testing.T) {
	allowing := func(images ...string) func(s *v1alpha1.PolicySpec) {
		return withLimits(v1alpha1.PolicyLimits{AllowedImages: images})
	}
	ours := newPolicy("ours", 0, allowing("registry.example/team/*", "registry.example/base:1"))
	pod := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: image}}}
	}
	for title, test := range map[string]struct {
		pod      corev1.PodSpec
		policies []v1alpha1.Policy
		want     string
	}{
		"any image without a list":  {pod("anything"), []v1alpha1.Policy{newPolicy("silent", 0)}, ""},
		"a listed image":            {pod("registry.example/team/a/b:1"), []v1alpha1.Policy{ours}, ""},
		"a container without image": {pod(""), []v1alpha1.Policy{ours}, ""},
		"an image that is not listed": {
			pod("other:1"),
			[]v1alpha1.Policy{ours},
			`image "other:1" of container "worker" is not allowed by Policy ours, which allows: registry.example/team/*, registry.example/base:1`,
		},
		"each list must allow the image": {
			pod("registry.example/base:1"),
			[]v1alpha1.Policy{ours, newPolicy("strict", 0, allowing("*/team/*"))},
			`image "registry.example/base:1" of container "worker" is not allowed by Policy strict, which allows: */team/*`,
		},
		"all containers and volumes count": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "init", Image: "x"}},
				Containers:     []corev1.Container{{Name: "worker", Image: "registry.example/base:1"}, {Name: "side", Image: "y"}},
				Volumes:        []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "z"}}}},
			},
			[]v1alpha1.Policy{newPolicy("p", 0, allowing("registry.example/base:1"))},
			`image "y" of container "side" is not allowed by Policy p, which allows: registry.example/base:1
image "x" of init container "init" is not allowed by Policy p, which allows: registry.example/base:1
image "z" of volume "v" is not allowed by Policy p, which allows: registry.example/base:1`,
		},
	} {
		t.Run(title, func(t *testing.T) {
			got := ""
			if err := CheckImages(&test.pod, all(t, test.policies...)); err != nil {
				got = err.Error()
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestAsteriskMatchesAnyCharacters(t *testing.T) {
	for title, test := range map[string]struct {
		pattern, text string
		want          bool
	}{
		"the same text without an asterisk":  {"a/b:1", "a/b:1", true},
		"another text without an asterisk":   {"a/b", "a/b:1", false},
		"an asterisk at the end":             {"a/*", "a/b/c:1", true},
		"an asterisk at the beginning":       {"*:1", "a/b:1", true},
		"an asterisk in between":             {"a/*:1", "a/b/c:1", true},
		"an asterisk matches no characters":  {"a*b", "ab", true},
		"characters are not matched twice":   {"ab*bc", "abc", false},
		"several asterisks in order":         {"*x*y*", "1y2x3y4", true},
		"several asterisks in another order": {"*x*y*", "1y2x3", false},
		"two adjacent asterisks":             {"a**b", "a-b", true},
		"a similar prefix":                   {"registry.example/*", "registry.example.evil/a", false},
		"a dot matches only a dot":           {"a.b", "axb", false},
		"a single asterisk":                  {"*", "anything", true},
		"an empty text":                      {"a*", "", false},
	} {
		require.True(t, matchesPattern(test.pattern, test.text) == test.want, "%s: matches(%q, %q) is not %t", title, test.pattern, test.text, test.want)
	}
}
