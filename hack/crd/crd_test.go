package main

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

// maxManifestBytes leaves room below the 262,144 bytes of all annotations of an object: client-side apply stores the manifest in one, as JSON.
const maxManifestBytes = 200_000

// manifests returns the CustomResourceDefinitions in config/crd as JSON, by their files.
func manifests(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.True(t, err == nil && len(files) != 0, "manifests %v: %v", files, err)
	all := map[string][]byte{}
	for _, file := range files {
		raw := require.Call(os.ReadFile(file)).Succeeds(t)
		all[filepath.Base(file)] = require.Call(yaml.YAMLToJSON(raw)).Succeeds(t)
	}
	return all
}

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for name, manifest := range manifests(t) {
		all[name] = &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict(manifest, all[name]))
	}
	return all
}

func TestManifestsAreSmallEnoughForClientSideApply(t *testing.T) {
	for name, manifest := range manifests(t) {
		require.True(t, len(manifest) <= maxManifestBytes, "%s has %d bytes as JSON, more than %d", name, len(manifest), maxManifestBytes)
	}
}

// kubectl explain shows them.
func TestFieldsOfYardmasterKeepTheirDescriptions(t *testing.T) {
	for name, crd := range definitions(t) {
		for _, part := range []string{"spec", "status"} {
			for field, property := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part].Properties {
				if strings.TrimSpace(property.Description) == "" {
					t.Errorf("%s: %s.%s has no description", name, part, field)
				}
			}
		}
	}
}

// goType matches the name of a Go type, such as corev1.Container or []string.
var goType = regexp.MustCompile(`\b[a-z][a-z0-9]*\.[A-Z][a-z]\w*|\[\][a-z]|map\[|\bint(32|64)\b`)

func TestDescriptionsNameNoGoTypes(t *testing.T) {
	for name, crd := range definitions(t) {
		walkSchema(name, crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
			found := goType.FindString(schema.Description)
			require.True(t, found == "", "%s: the description names the Go type %s: %s", path, found, schema.Description)
		})
	}
}

func TestAConditionWithoutAMeaningIsAnError(t *testing.T) {
	for _, source := range map[string]string{
		"no comment":           `const ConditionServing = "Serving"`,
		"a comment of a group": "// Types.\nconst (\n\tConditionServing = \"Serving\"\n)",
		"another beginning":    "// ConditionServing means that it serves.\nconst ConditionServing = \"Serving\"",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "types.go"), []byte("package v1alpha1\n\n"+source+"\n"), 0o600))
		require.ErrorContains(t, writeConditions(dir, filepath.Join(dir, "page"), nil), "the comment of ConditionServing must begin with")
	}
}

// The seconds of Kubernetes' own Pods pass through: the API server or the kubelet decides about them.
var secondsOfPods = regexp.MustCompile(`(terminationGracePeriodSeconds|tolerationSeconds|expirationSeconds|template\.spec\.activeDeadlineSeconds)$`)

var upperBound = regexp.MustCompile(`duration\(self\) <= duration\('([^']+)'\)`)

// Seconds beyond 292 years do not fit into a time.Duration: deadlines of Kubernetes and ours would be in the past.
func TestEveryDurationThatUsersCanWriteIsBounded(t *testing.T) {
	found := 0
	for file, crd := range definitions(t) {
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		walkSchema("spec", &spec, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
			isSeconds := schema.Type == "integer" && strings.HasSuffix(path, "Seconds") && schema.Format != "int32" && !secondsOfPods.MatchString(path)
			isDuration := false
			longest := time.Duration(0)
			for _, rule := range schema.XValidations {
				isDuration = isDuration || strings.Contains(rule.Message, "must be a duration")
				if bound := upperBound.FindStringSubmatch(rule.Rule); bound != nil {
					longest, _ = time.ParseDuration(bound[1])
				}
			}
			switch {
			case isSeconds && (schema.Maximum == nil || *schema.Maximum > math.MaxInt64/float64(time.Second)):
				t.Errorf("%s: %s has no maximum that fits into a time.Duration", file, path)
			case isDuration && longest <= 0:
				t.Errorf("%s: %s has no maximum", file, path)
			}
			if isSeconds || isDuration {
				found++
			}
		})
	}
	require.True(t, found >= 25, "found only %d durations", found)
}

func walkSchema(path string, schema *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name, property := range schema.Properties {
		walkSchema(path+"."+name, &property, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walkSchema(path+"[]", schema.Items.Schema, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walkSchema(path+"{}", schema.AdditionalProperties.Schema, visit)
	}
}

// The API server also limits how expensive validation rules may be, by the greatest sizes of the values.
func TestTheAPIServerAcceptsAllCRDs(t *testing.T) {
	for name, crd := range definitions(t) {
		internal := &apiextensions.CustomResourceDefinition{}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil))
		for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

func TestAnOverrideThatLostItsLimitsIsReported(t *testing.T) {
	type step struct {
		Name             string `json:"name"`
		corev1.Container `json:",inline"`
	}
	for problems, name := range []apiextensionsv1.JSONSchemaProps{
		{Type: "string", MinLength: new(int64(1)), MaxLength: new(int64(30)), Pattern: "^[a-z]+$"}, {Type: "string"},
	} {
		w := schemaWalker{}
		s := &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": name, "image": {Type: "string"}}}
		w.walkSchema("template", s, reflect.TypeFor[step](), originYardmaster)
		require.True(t, len(w.problems) == problems, "problems: %v, want %d", w.problems, problems)
	}
}

func TestUnusableFieldsExistInTheirTypes(t *testing.T) {
	for of, names := range unusableFields {
		fields := structFields(of)
		for _, name := range names {
			if _, found := fields[name]; !found {
				t.Errorf("%s has no field %s: remove it from the list", of, name)
			}
		}
	}
}

func TestTheShortPatternMatchesTheSameQuantities(t *testing.T) {
	long, short := regexp.MustCompile(quantityPattern), regexp.MustCompile(shortQuantityPattern)
	for _, sign := range []string{"", "+", "-", "+-"} {
		for _, number := range []string{"", "1", "10.", "1.5", ".5", ".", "1.5.", "a"} {
			for _, unit := range []string{"", "Ki", "K", "k", "m", "i", "e3", "E+3", "E-.5", "e", "Mi ", "ee"} {
				if text := sign + number + unit; long.MatchString(text) != short.MatchString(text) {
					t.Errorf("%q: %t and %t", text, long.MatchString(text), short.MatchString(text))
				}
			}
		}
	}
}

func TestAnEntryOfASelectionThatChangesNothingIsAnError(t *testing.T) {
	type properties = map[string]apiextensionsv1.JSONSchemaProps
	container := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties{"name": {Type: "string"}, "image": {Type: "string"}}}
	for _, paths := range [][]string{{"volumes"}, {"containers.command"}, {"containers", "containers.name"}, {"containers.name", "containers"}} {
		s := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties{"containers": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: container}}}}
		require.True(t, keepOnly(s, paths) != nil, "%v: no error", paths)
	}
}
