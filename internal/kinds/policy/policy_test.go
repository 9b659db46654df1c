package policy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

// all returns the selection of all Policies.
func all(t *testing.T, policies ...v1alpha1.Policy) *Selection {
	t.Helper()
	set, err := NewSet(policies)
	require.NoError(t, err)
	return new(set.Select(nil))
}

// sourcedValue is a value and its source.
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

// set sets a setting to a value that contains the number.
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
			set, err := NewSet(test.policies)
			require.NoError(t, err)
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
