package applyconfiguration_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/applyconfiguration"
	"github.com/yardmaster/yardmaster/test/require"
)

// A generator can get the inlined containers and Pod templates wrong, and types with an encoding of their own.
func TestExamplesPassThroughApplyConfigurationsUnchanged(t *testing.T) {
	tried := 0
	for file, documents := range examples(t) {
		for _, document := range documents {
			var kind metav1.TypeMeta
			require.NoError(t, json.Unmarshal(document, &kind))
			if kind.GroupVersionKind().GroupVersion() != v1alpha1.GroupVersion || filepath.Base(file) == "invalid-typo.yaml" {
				continue
			}
			tried++
			configuration := applyconfiguration.ForKind(kind.GroupVersionKind())
			require.NoError(t, yaml.UnmarshalStrict(document, configuration))
			encoded := require.Call(json.Marshal(configuration)).Succeeds(t)
			diff := cmp.Diff(decode(t, document), decode(t, encoded), sameDurations)
			require.True(t, diff == "", "%s: the %s changed:\n%s", file, kind.Kind, diff)
		}
	}
	require.True(t, tried >= 30, "only %d examples were found", tried)
}

func TestEveryKindHasAnApplyConfiguration(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	for kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		_, isObject := require.Call(scheme.New(v1alpha1.GroupVersion.WithKind(kind))).Succeeds(t).(metav1.Object)
		require.True(t, !isObject || applyconfiguration.ForKind(v1alpha1.GroupVersion.WithKind(kind)) != nil, "%s has none: mark its type with +genclient", kind)
	}
}

// sameDurations compares durations by their length: 1m is written as 1m0s.
var sameDurations = cmp.Comparer(func(a, b string) bool {
	first, errFirst := time.ParseDuration(a)
	second, errSecond := time.ParseDuration(b)
	return a == b || errFirst == nil && errSecond == nil && first == second
})

// examples returns the documents of each YAML file below examples/, as JSON.
func examples(t *testing.T) map[string][]json.RawMessage {
	t.Helper()
	all := map[string][]json.RawMessage{}
	err := filepath.WalkDir("../examples", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		for reader := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
			var document json.RawMessage
			if err := reader.Decode(&document); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			all[path] = append(all[path], document)
		}
	})
	require.NoError(t, err)
	return all
}

func decode(t *testing.T, document []byte) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(document, &value))
	return value
}
