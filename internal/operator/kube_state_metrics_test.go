package operator

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

// kubeStateMetrics is the part of a configuration of kube-state-metrics that refers to the API.
type kubeStateMetrics struct {
	Spec struct {
		Resources []struct {
			GroupVersionKind struct{ Group, Version, Kind string }
			Metrics          []struct {
				Each struct {
					Gauge struct {
						Path           []string
						LabelsFromPath map[string][]string
						ValueFrom      []string
					}
				}
			}
		}
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func readCRDs(t *testing.T) map[string]*apiextensionsv1.JSONSchemaProps {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	require.True(t, err == nil && len(files) != 0, "%v, %v", files, err)
	schemas := map[string]*apiextensionsv1.JSONSchemaProps{}
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		readYAML(t, file, crd)
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			schemas[crd.Spec.Group+"/"+version.Name+"/"+crd.Spec.Names.Kind] = version.Schema.OpenAPIV3Schema
		}
	}
	return schemas
}

// schemaAt returns the schema at a path, through the items of arrays; nil if the path does not exist.
func schemaAt(schema *apiextensionsv1.JSONSchemaProps, path ...string) *apiextensionsv1.JSONSchemaProps {
	for _, name := range path {
		if schema.Items != nil {
			schema = schema.Items.Schema
		}
		property, found := schema.Properties[name]
		if !found {
			return nil
		}
		schema = &property
	}
	return schema
}

// kube-state-metrics logs an error for each object without one of these fields.
func TestKubeStateMetricsExportsTheConditionsOfAllKinds(t *testing.T) {
	var configuration kubeStateMetrics
	readYAML(t, filepath.Join("..", "..", "config", "kube-state-metrics", "custom-resource-state.yaml"), &configuration)
	if len(configuration.Spec.Resources) != 1 || len(configuration.Spec.Resources[0].Metrics) != 1 {
		t.Fatalf("configuration %+v, want one metric of all kinds", configuration)
	}
	resource := &configuration.Spec.Resources[0]
	wildcard := resource.GroupVersionKind.Group + "/" + resource.GroupVersionKind.Version + "/"
	gauge := &resource.Metrics[0].Each.Gauge
	for kind, schema := range readCRDs(t) {
		require.True(t, strings.HasPrefix(kind, wildcard) && resource.GroupVersionKind.Kind == "*", "%s is not configured", kind)
		for _, path := range [][]string{gauge.ValueFrom, gauge.LabelsFromPath["type"], gauge.LabelsFromPath["reason"]} {
			require.True(t, len(path) != 0 && schemaAt(schema, slices.Concat(gauge.Path, path)...) != nil, "%s: no field %v in %v", kind, path, gauge.Path)
		}
	}
}

// Alerts use the namespace label of metrics such as yardmaster_jobreport_jobs. Without honorLabels,
// Prometheus replaces it by the operator's namespace.
func TestServiceMonitorKeepsTheNamespaceLabelOfMetrics(t *testing.T) {
	var monitor struct {
		Spec struct{ Endpoints []struct{ HonorLabels bool } }
	}
	readYAML(t, filepath.Join("..", "..", "config", "components", "prometheus", "service_monitor.yaml"), &monitor)
	require.True(t, len(monitor.Spec.Endpoints) != 0, "no endpoints")
	for i, endpoint := range monitor.Spec.Endpoints {
		require.True(t, endpoint.HonorLabels, "endpoint %d does not honour the labels", i)
	}
}
