package queue

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

// engineIndependent are the fields of a spec in which engines cannot differ, and why.
var engineIndependent = map[string]string{
	"broker":         "selects the engine",
	"name":           "each engine has names",
	"deletionPolicy": "the operator implements it",
	"drift":          "the operator implements it",
	"strictPriority": "applies only with priorities",
}

// A field in neither list would have no reported enforcement.
func TestEngineReportsEnforcementOfEachFieldOfTheSpec(t *testing.T) {
	enforceable := fieldsInUse(newQueue(), &v1alpha1.QueueEffective{})
	var found []string
	for _, path := range fieldPaths(reflect.TypeFor[v1alpha1.QueueSpec](), "", enforceable) {
		_, isEnforceable := enforceable[broker.QueueField(path)]
		_, isIndependent := engineIndependent[path]
		if isEnforceable == isIndependent {
			t.Errorf("spec.%s: in fieldsInUse: %t, in engineIndependent: %t, want exactly one", path, isEnforceable, isIndependent)
		}
		found = append(found, path)
	}
	for field := range enforceable {
		require.True(t, field == broker.FieldDelayed || slices.Contains(found, string(field)), "the spec has no field %s", field)
	}
	for field := range engineIndependent {
		require.True(t, slices.Contains(found, field), "the spec has no field %s", field)
	}
}

// fieldPaths returns the paths of the fields of a struct. It descends into a field of which only parts are enforceable.
func fieldPaths(of reflect.Type, within string, enforceable map[broker.QueueField]bool) []string {
	var all []string
	for field := range of.Fields() {
		if field.Anonymous {
			all = append(all, fieldPaths(field.Type, within, enforceable)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := within + name
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		isBelow := func(field broker.QueueField) bool { return strings.HasPrefix(string(field), path+".") }
		if slices.ContainsFunc(slices.Collect(maps.Keys(enforceable)), isBelow) {
			all = append(all, fieldPaths(kind, path+".", enforceable)...)
			continue
		}
		all = append(all, path)
	}
	return all
}

func TestEachEngineReportsAllCapabilities(t *testing.T) {
	nats, err := jetstream.Connect(t.Context(), broker.Credentials{URL: natstest.Start(t).ClientURL()})
	require.NoError(t, err)
	t.Cleanup(nats.Disconnect)
	want := slices.Sorted(maps.Keys(fieldsInUse(newQueue(), &v1alpha1.QueueEffective{})))
	for engine, capabilities := range map[v1alpha1.Engine]broker.Capabilities{
		v1alpha1.EngineNATS: nats.Capabilities(), v1alpha1.EngineAsynq: (*asynq.Engine)(nil).Capabilities(),
	} {
		got := slices.Sorted(maps.Keys(capabilities))
		require.True(t, slices.Equal(got, want), "%s reports %v, want %v", engine, got, want)
		for field, capability := range capabilities {
			require.True(t, capability.By != broker.NotEnforced || capability.Message != "", "%s does not say why %s is not enforced", engine, field)
		}
	}
}
