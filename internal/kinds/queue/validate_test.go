package queue

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestWarnings(t *testing.T) {
	two := []v1alpha1.QueuePriority{{Name: "high", Share: v1alpha1.Share{Weight: 2}}, {Name: "low", Share: v1alpha1.Share{Weight: 1}}}
	for name, row := range map[string]struct {
		spec v1alpha1.QueueSpec
		want []string
	}{
		"the defaults":                {v1alpha1.QueueSpec{}, nil},
		"asynq":                       {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}}}, []string{"spec.broker.engine: "}},
		"maxInFlight with priorities": {v1alpha1.QueueSpec{Priorities: two, MaxInFlight: new(int32(4))}, []string{"spec.maxInFlight: each priority gets a share"}},
		"strict priorities":           {v1alpha1.QueueSpec{Priorities: two, StrictPriority: true}, []string{"spec.strictPriority: "}},
		"no dead letters":             {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(0))}}}, []string{"spec.deadLetter.maxEntries: messages"}},
		"limited dead letters":        {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(5))}}}, []string{"spec.deadLetter.maxEntries: the oldest"}},
		"expiring dead letters":       {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{Retention: durationOf(time.Hour)}}}, []string{"spec.deadLetter.retention: "}},
		"one replica":                 {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Replicas: new(int32(1))}}, []string{"spec.storage.replicas: "}},
		"storage in memory":           {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Type: v1alpha1.StorageMemory}}, []string{"spec.storage.type: "}},
		"three replicas on disk":      {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Replicas: new(int32(3)), Type: v1alpha1.StorageFile}}, nil},
		"dead letters without limits": {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{Retention: durationOf(0)}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assertPrefixes(t, Warnings(newQueue(func(q *v1alpha1.Queue) { q.Spec = row.spec })), row.want)
		})
	}
}

func TestUpdateWarnings(t *testing.T) {
	before := newQueue(func(q *v1alpha1.Queue) {
		q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "high"}, {Name: "low"}}
	})
	after := before.DeepCopy()
	assertPrefixes(t, UpdateWarnings(before, after), nil)
	after.Spec.Priorities, after.Spec.MaxBacklog = after.Spec.Priorities[:1], new(int64(9))
	assertPrefixes(t, UpdateWarnings(before, after), []string{"spec.priorities: low stays on the broker"})
	assertPrefixes(t, UpdateWarnings(after, after), nil)
}

// Each field is in use or not, and enforced or not. The API server sets the lease, so the default is no request.
func TestAFieldInUseThatNothingEnforcesIsReported(t *testing.T) {
	used := newQueue(func(q *v1alpha1.Queue) {
		q.Spec.Lease, q.Spec.MaxBacklog, q.Spec.MaxAge = durationOf(time.Minute), new(int64(9)), durationOf(time.Hour)
	})
	unused := newQueue(func(q *v1alpha1.Queue) { q.Spec.Lease = durationOf(broker.DefaultQueueConfig("").Lease) })
	for title, row := range map[string]struct {
		queue *v1alpha1.Queue
		by    broker.Enforcer
		want  []string
	}{
		"in use":               {used, broker.NotEnforced, []string{"lease", "maxAge", "maxBacklog"}},
		"in use and enforced":  {used, broker.EnforcedByBroker, nil},
		"not in use":           {unused, broker.NotEnforced, nil},
		"not in use, enforced": {unused, broker.EnforcedByBroker, nil},
	} {
		capabilities := broker.Capabilities{}
		for _, field := range []broker.QueueField{broker.FieldMaxBacklog, broker.FieldMaxAge, broker.FieldLease, broker.FieldDelayed} {
			capabilities[field] = broker.Enforcement{By: row.by, Message: "no"}
		}
		var warnings, missing []string
		for _, field := range row.want {
			warnings, missing = append(warnings, "spec."+field+": not enforced: no"), append(missing, field+" (no)")
		}
		for range 20 { // the fields are in a map
			got := UnenforcedFieldWarnings(row.queue, capabilities)
			require.True(t, slices.Equal(got, warnings), "%s: warnings %q, want %q", title, got, warnings)
			o := observed(func(o *Observation) { o.Queue = row.queue })
			got = unenforcedFields(&o, &broker.EnsureResult{Enforcement: capabilities})
			got = slices.DeleteFunc(got, func(field string) bool { return row.queue == unused && field == "lease (no)" })
			require.True(t, slices.Equal(got, missing), "%s: missing %q, want %q", title, got, missing)
		}
	}
}

func assertPrefixes(t *testing.T, got, want []string) {
	t.Helper()
	require.True(t, slices.EqualFunc(got, want, strings.HasPrefix), "%q, want %q", got, want)
}

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
