package operator

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
	"github.com/yardmaster/yardmaster/test/require"
)

var (
	// Other names of a broker, such as streams, also begin with yardmaster_.
	metricName        = regexp.MustCompile(`\b(?:yardmaster_(?:sequentialjob|jobreport|queue|workerpool|worker|policy|broker|schedule|session|watch|cache|admission|webhook|build)|controller_runtime|workqueue|leader_election)_[a-z_]+|\byardmaster_schedules\b`)
	metricDescription = regexp.MustCompile(`fqName: "([a-z_]+)"`)
	metricDefinition  = regexp.MustCompile(`"(yardmaster_worker_[a-z_]+)"`)
)

// exportedMetrics returns the names of the metrics of workers, and of the operator with all controllers set up.
func exportedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	registerOnce.Do(func() { registerAllMetrics(t) })
	collector, is := metrics.Registry.(prometheus.Collector)
	require.True(t, is, "%T does not describe what it collects", metrics.Registry)
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		collector.Describe(descriptions)
	}()
	names := map[string]bool{}
	for description := range descriptions {
		if match := metricDescription.FindStringSubmatch(description.String()); match != nil {
			names[match[1]] = true
		}
	}
	// A new worker does not export its metrics without a value, so their names are those in its source.
	found := metricDefinition.FindAllStringSubmatch(string(readFiles(t, "worker/metrics.go")["../../worker/metrics.go"]), -1)
	require.True(t, len(found) != 0, "the worker's source has no metrics")
	for _, match := range found {
		names[match[1]] = true
	}
	return names
}

// registerOnce registers the metrics once, because they are global to the process.
var registerOnce sync.Once

// registerAllMetrics sets up all controllers in a manager that is never started.
func registerAllMetrics(t *testing.T) {
	t.Helper()
	o := Options{Concurrency: 1, Metrics: MetricsOptions{Address: "0"}, HealthAddress: "0"}
	o.Report.Namespaces = []string{"team-a"}
	options := require.Call(managerOptions(o, informer.NewRestoreDetector())).Succeeds(t)
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range options.Scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	mgr := require.Call(ctrl.NewManager(&rest.Config{Host: "127.0.0.1:0"}, options)).Succeeds(t)
	o.brokerManager = brokerManagerOnce(mgr, o)
	o.admissionPolicies = func() (*kube.AdmissionPolicies, error) {
		return kube.NewAdmissionPolicies(mgr.GetAPIReader(), nil, "nothing happens"), nil
	}
	for _, controller := range AllControllers() {
		require.NoError(t, controller.Setup(mgr, o))
	}
}

// readFiles returns the content of the files in the repository that match a pattern.
func readFiles(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
	require.True(t, err == nil && len(files) != 0, "%s: %v, %v", pattern, files, err)
	contents := map[string][]byte{}
	for _, file := range files {
		contents[file] = require.Call(os.ReadFile(file)).Succeeds(t)
	}
	return contents
}

// mentionedMetrics are the metrics that files speak of, and in which file. Of a histogram there are several.
func mentionedMetrics(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, pattern := range patterns {
		for file, content := range readFiles(t, pattern) {
			for _, name := range metricName.FindAllString(string(content), -1) {
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					name = strings.TrimSuffix(name, suffix)
				}
				names[name] = file
			}
		}
	}
	return names
}

func TestEachMetricIsDocumentedAndEachMentionedOneExists(t *testing.T) {
	exported, documented := exportedMetrics(t), mentionedMetrics(t, "docs/*.md", "docs/reference/*.md")
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		require.True(t, !strings.HasPrefix(name, "yardmaster_") || documented[name] != "", "metric %s is not documented", name)
	}
	maps.Copy(documented, mentionedMetrics(t, "config/components/*/*.yaml", "config/dashboards/*.json"))
	for name, file := range documented {
		require.True(t, exported[name], "%s: unknown metric %s", file, name)
	}
}

// These match the parts of a PromQL expression that are not metrics. Any other word must be the name of an exported metric.
var (
	quotedText      = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\$[a-z_]+|\b[0-9]+[smhdw]\b|\b(?:by|on|ignoring|group_left|group_right|without) *\([^)]*\)`)
	promqlWord      = regexp.MustCompile(`[a-z_][a-z_0-9]*`)
	promqlFunctions = []string{
		"sum", "max", "min", "rate", "increase", "deriv", "delta", "time", "absent", "and", "or", "unless", "on", "by",
		"label_replace", "histogram_quantile", "clamp_min", "le", "group_left", "offset",
	}
)

func TestExpressionsUseExistingMetrics(t *testing.T) {
	exported := exportedMetrics(t)
	for at, expression := range alertExpressions(t) {
		metrics := 0
		for _, name := range promqlWord.FindAllString(quotedText.ReplaceAllString(expression, " "), -1) {
			if slices.Contains(promqlFunctions, name) {
				continue
			}
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if !exported[name] {
					name = strings.TrimSuffix(name, suffix)
				}
			}
			metrics++
			require.True(t, exported[name], "%s: unknown metric %s in\n%s", at, name, expression)
		}
		require.True(t, metrics != 0, "%s uses no metric: %s", at, expression)
		require.True(t, strings.Count(expression, "(") == strings.Count(expression, ")"), "%s: parentheses do not match: %s", at, expression)
	}
}

// alertExpressions returns the expressions of all alerts and dashboards by their location.
func alertExpressions(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"config/components/*/rules.yaml", "config/dashboards/*.json"} {
		for file, content := range readFiles(t, pattern) {
			var parsed any
			err := yaml.UnmarshalStrict(content, &parsed) // JSON is YAML
			require.True(t, err == nil, "%s: %v", file, err)
			before := len(found)
			collectExpressions(found, file, parsed)
			require.True(t, len(found) != before, "%s has no expression", file)
		}
	}
	return found
}

// collectExpressions adds the values of all keys named expr, at any depth.
func collectExpressions(found map[string]string, at string, node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if text, isString := value.(string); isString && key == "expr" {
				found[at] = text
				continue
			}
			collectExpressions(found, at+"."+key, value)
		}
	case []any:
		for i, value := range node {
			collectExpressions(found, at+"."+strconv.Itoa(i), value)
		}
	}
}

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

func readYAML(t *testing.T, pattern string, into any) {
	t.Helper()
	for file, content := range readFiles(t, pattern) {
		err := yaml.Unmarshal(content, into)
		require.True(t, err == nil, "%s: %v", file, err)
	}
}

func readCRDs(t *testing.T) map[string]*apiextensionsv1.JSONSchemaProps {
	t.Helper()
	schemas := map[string]*apiextensionsv1.JSONSchemaProps{}
	for file, content := range readFiles(t, "config/crd/bases/*.yaml") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.True(t, yaml.Unmarshal(content, crd) == nil, "%s is not a CustomResourceDefinition", file)
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
	readYAML(t, "config/kube-state-metrics/custom-resource-state.yaml", &configuration)
	isOne := len(configuration.Spec.Resources) == 1 && len(configuration.Spec.Resources[0].Metrics) == 1
	require.True(t, isOne, "configuration %+v, want one metric of all kinds", configuration)
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
	readYAML(t, "config/components/prometheus/service_monitor.yaml", &monitor)
	require.True(t, len(monitor.Spec.Endpoints) != 0, "no endpoints")
	for i, endpoint := range monitor.Spec.Endpoints {
		require.True(t, endpoint.HonorLabels, "endpoint %d does not honour the labels", i)
	}
}
