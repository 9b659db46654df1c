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
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
)

// alike are the fields of a spec that engines cannot differ in, and why.
var alike = map[string]string{
	"broker":         "says which engine it is",
	"name":           "each engine has names",
	"deletionPolicy": "the operator carries it out",
	"drift":          "the operator carries it out",
	"strictPriority": "goes with priorities",
}

// Of a field that is in neither list nobody would tell whether it is kept to.
func TestEachFieldOfTheSpecIsOneThatEnginesTellOfOrAreAlikeIn(t *testing.T) {
	told := fieldsInUse(mail(), &v1alpha1.QueueEffective{})
	var found []string
	for _, path := range paths(reflect.TypeFor[v1alpha1.QueueSpec](), "", told) {
		_, engines := told[broker.QueueField(path)]
		_, same := alike[path]
		if engines == same {
			t.Errorf("spec.%s: told of by engines: %t, alike: %t, want one of them", path, engines, same)
		}
		found = append(found, path)
	}
	for field := range told {
		if field != broker.FieldDelayed && !slices.Contains(found, string(field)) {
			t.Errorf("the spec has no field %s", field)
		}
	}
	for field := range alike {
		if !slices.Contains(found, field) {
			t.Errorf("the spec has no field %s", field)
		}
	}
}

// paths of the fields of a struct; of one whose own fields are told of, theirs.
func paths(of reflect.Type, within string, told map[broker.QueueField]bool) []string {
	var all []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := within + name
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if hasWithin(told, path) {
			all = append(all, paths(kind, path+".", told)...)
			continue
		}
		all = append(all, path)
	}
	return all
}

func hasWithin(told map[broker.QueueField]bool, path string) bool {
	for field := range told {
		if strings.HasPrefix(string(field), path+".") {
			return true
		}
	}
	return false
}

func TestEachEngineTellsWhoKeepsToEachField(t *testing.T) {
	nats, err := jetstream.Connect(t.Context(), broker.Credentials{URL: natstest.Start(t).ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Disconnect)
	want := slices.Sorted(maps.Keys(fieldsInUse(mail(), &v1alpha1.QueueEffective{})))
	for engine, by := range map[v1alpha1.Engine]broker.Capabilities{
		v1alpha1.EngineNATS: nats.Capabilities(), v1alpha1.EngineAsynq: (*asynq.Engine)(nil).Capabilities(),
	} {
		if got := slices.Sorted(maps.Keys(by)); !slices.Equal(got, want) {
			t.Errorf("%s tells of %v, want %v", engine, got, want)
		}
		for field, who := range by {
			if who.By == broker.NotEnforced && who.Message == "" {
				t.Errorf("%s does not say why nobody keeps to %s", engine, field)
			}
		}
	}
}
