package manager

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	metricName = regexp.MustCompile(`\byardmaster_[a-z_]+`)
	described  = regexp.MustCompile(`fqName: "(yardmaster_[a-z_]+)"`)
)

// exported are the names of the operator's own metrics, with all its controllers set up.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	setUp.Do(func() { setUpAll(t) })
	collector, is := metrics.Registry.(prometheus.Collector)
	if !is {
		t.Fatalf("%T does not describe what it collects", metrics.Registry)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		collector.Describe(descriptions)
	}()
	names := map[string]bool{}
	for description := range descriptions {
		if match := described.FindStringSubmatch(description.String()); match != nil {
			names[match[1]] = true
		}
	}
	return names
}

// setUp is done once: metrics are the process's.
var setUp sync.Once

// setUpAll sets up all controllers in a manager that is never started.
func setUpAll(t *testing.T) {
	t.Helper()
	o := Options{Concurrency: 1, Metrics: Metrics{Address: "0"}, HealthAddress: "0"}
	o.Report.Namespaces = []string{"team-a"}
	options, err := managerOptions(o)
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range options.Scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:0"}, options)
	if err != nil {
		t.Fatal(err)
	}
	if o.keeper, err = newKeeper(mgr, o); err != nil {
		t.Fatal(err)
	}
	for _, controller := range All() {
		if err := controller.Setup(mgr, o); err != nil {
			t.Fatal(err)
		}
	}
}

// mentioned are the metrics that files speak of, and in which file. Of a histogram there
// are several.
func mentioned(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
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

func TestAlertsAndPagesSpeakOnlyOfMetricsThatThereAre(t *testing.T) {
	there := exported(t)
	for name, file := range mentioned(t, "docs/*.md", "config/components/*/*.yaml") {
		if !there[name] {
			t.Errorf("%s: there is no %s", file, name)
		}
	}
}

func TestEveryMetricIsInThePages(t *testing.T) {
	told := mentioned(t, "docs/*.md")
	for _, name := range slices.Sorted(maps.Keys(exported(t))) {
		if told[name] == "" {
			t.Errorf("no page speaks of %s", name)
		}
	}
}
