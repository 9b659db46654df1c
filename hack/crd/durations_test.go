package main

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

// The seconds of Kubernetes' own Pods pass through: the API server or the kubelet decides about them.
var secondsOfPods = regexp.MustCompile(`(terminationGracePeriodSeconds|tolerationSeconds|expirationSeconds|template\.spec\.activeDeadlineSeconds)$`)

// upperBound is the rule by which a CustomResourceDefinition limits a duration.
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
