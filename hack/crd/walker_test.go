package main

import (
	"reflect"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

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
