package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

// maxManifestBytes leaves room below the 262,144 bytes of all annotations of an object: client-side apply stores the
// manifest in one, as JSON.
const maxManifestBytes = 200_000

// manifests returns the CustomResourceDefinitions in config/crd as JSON, by their files.
func manifests(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.True(t, err == nil && len(files) != 0, "manifests %v: %v", files, err)
	all := map[string][]byte{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		if all[filepath.Base(file)], err = yaml.YAMLToJSON(raw); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

// definitions returns the CustomResourceDefinitions in config/crd, by their files.
func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for name, manifest := range manifests(t) {
		all[name] = &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(manifest, all[name]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
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
		for i := range crd.Spec.Versions {
			for _, part := range []string{"spec", "status"} {
				schema := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties[part]
				for field := range schema.Properties {
					if property := schema.Properties[field]; strings.TrimSpace(property.Description) == "" {
						t.Errorf("%s: %s.%s has no description", name, part, field)
					}
				}
			}
		}
	}
}

// goType matches the name of a Go type, such as corev1.Container or []string.
var goType = regexp.MustCompile(`\b[a-z][a-z0-9]*\.[A-Z][a-z]\w*|\[\][a-z]|map\[|\bint(32|64)\b`)

func TestDescriptionsNameNoGoTypes(t *testing.T) {
	for name, crd := range definitions(t) {
		for i := range crd.Spec.Versions {
			checkDescriptions(t, name, crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	}
}

func checkDescriptions(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	if found := goType.FindString(schema.Description); found != "" {
		t.Errorf("%s: the description names the Go type %s: %s", path, found, schema.Description)
	}
	for name := range schema.Properties {
		checkDescriptions(t, path+"."+name, new(schema.Properties[name]))
	}
	if schema.Items != nil {
		checkDescriptions(t, path+"[]", schema.Items.Schema)
	}
}
