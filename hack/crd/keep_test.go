package main

import (
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

func TestAnEntryOfASelectionThatChangesNothingIsAnError(t *testing.T) {
	for _, paths := range [][]string{{"volumes"}, {"containers.command"}, {"containers", "containers.name"}, {"containers.name", "containers"}} {
		require.True(t, keepOnly(podSchema(), paths) != nil, "%v: no error", paths)
	}
}
