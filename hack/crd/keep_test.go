package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

type properties = map[string]apiextensionsv1.JSONSchemaProps

func podSchema() *apiextensionsv1.JSONSchemaProps {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	container := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"name", "image"}, Properties: properties{
		"name": text, "image": text, "securityContext": {Type: "object", Properties: properties{"privileged": {Type: "boolean"}}},
	}}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties{
		"containers":  {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &container}},
		"labels":      {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &text}},
		"names":       {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
		"hostNetwork": {Type: "boolean"},
	}}
}

func TestOnlyListedFieldsRemain(t *testing.T) {
	s := podSchema()
	require.NoError(t, keepOnly(s, []string{"containers.name", "labels"}))
	container := s.Properties["containers"].Items.Schema
	for title, got := range map[string][]string{
		"containers labels": slices.Sorted(maps.Keys(s.Properties)), "name": slices.Sorted(maps.Keys(container.Properties)),
	} {
		if strings.Join(got, " ") != title {
			t.Errorf("fields %v, want %s", got, title)
		}
	}
	if !slices.Equal(container.Required, []string{"name"}) {
		t.Errorf("required are %v", container.Required)
	}
}

func TestAnEntryOfASelectionThatChangesNothingIsAnError(t *testing.T) {
	for _, paths := range [][]string{{"volumes"}, {"containers.command"}, {"containers", "containers.name"}, {"containers.name", "containers"}} {
		if keepOnly(podSchema(), paths) == nil {
			t.Errorf("%v: no error", paths)
		}
	}
}

func TestListsMapsAndStringsAreLimited(t *testing.T) {
	s := podSchema()
	for _, path := range []string{"containers", "labels", "names", "names.[]"} {
		require.NoError(t, at(s, strings.Split(path, "."), func(s *apiextensionsv1.JSONSchemaProps) error { return limit(s, 2) }))
	}
	names := s.Properties["names"]
	if *s.Properties["containers"].MaxItems != 2 || *s.Properties["labels"].MaxProperties != 2 || *names.MaxItems != 2 || *names.Items.Schema.MaxLength != 2 {
		t.Errorf("%+v", s.Properties)
	}
	if at(s, []string{"hostNetwork"}, func(s *apiextensionsv1.JSONSchemaProps) error { return limit(s, 2) }) == nil {
		t.Error("a field without entries or a length is limited")
	}
}
