package helm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const repositoryRoot = "../../.."

// Both ways to install create the same objects with the same settings. The chart is generated from the manifests,
// so a setting that only one of them has, or applies differently, is an error of the generator.
func TestChartCreatesTheSameObjectsAsMakeDeploy(t *testing.T) {
	c := loadChart(t)
	for name, row := range map[string]struct {
		overlay []string // arguments of hack/overlay after the image
		values  map[string]any
	}{
		"defaults": {overlay: []string{"*", "default", "", "", "", release}},
		"some controllers in two namespaces": {
			overlay: []string{"queue,workerpool", "team-a,team-b", "", "", "3", release},
			values:  map[string]any{"controllers": []any{"queue", "workerpool"}, "namespaces": []any{"team-a", "team-b"}, "replicas": 3},
		},
		"settings of the operator": {
			overlay: []string{"*", "team-a", "", "", "", release, "", "YARDMASTER_CONCURRENCY=20,YARDMASTER_REPORT_INTERVAL=1m"},
			values:  map[string]any{"namespaces": []any{"team-a"}, "flags": map[string]any{"concurrency": "20", "report-interval": "1m"}},
		},
		"schedules and sequences only": {
			overlay: []string{"schedule,sequentialjob", "team-a", "", "", "", release},
			values:  map[string]any{"controllers": []any{"schedule", "sequentialjob"}, "namespaces": []any{"team-a"}},
		},
		"sessions without schedules": {
			overlay: []string{"*,-schedule", "team-a", "", "", "", release},
			values:  map[string]any{"controllers": []any{"*", "-schedule"}, "namespaces": []any{"team-a"}},
		},
		"the gateway in two namespaces": {
			overlay: []string{"*", "team-a,team-b", "default-broker,gateway", "", "", release},
			values: map[string]any{
				"namespaces": []any{"team-a", "team-b"}, "gateway": map[string]any{"enabled": true}, "broker": map[string]any{"urlSecret": "yardmaster-broker"},
			},
		},
		"reports only": {
			overlay: []string{"jobreport", "*", "", "team-c", "", release},
			values:  map[string]any{"controllers": []any{"jobreport"}, "namespaces": []any{"*"}, "report": map[string]any{"namespaces": []any{"team-c"}}},
		},
		"all components in all namespaces": {
			overlay: []string{
				"*", "*", "cert-manager,admission-policy,webhook-network-policy,prometheus,jobreport-alerts,jobreport-openreports,queue-alerts,default-broker,gateway",
				"team-c", "", release, "release=prometheus",
			},
			values: map[string]any{
				"namespaces": []any{"*"}, "certManager": map[string]any{"enabled": true}, "creatorPolicy": map[string]any{"enabled": true},
				"networkPolicy": map[string]any{"apiServerCIDRs": []any{"192.0.2.0/24"}},
				"monitoring": map[string]any{
					"serviceMonitor": true, "podMonitor": true, "jobReportAlerts": true, "queueAlerts": true, "labels": map[string]any{"release": "prometheus"},
				},
				"report": map[string]any{"openReports": true, "namespaces": []any{"team-c"}},
				"broker": map[string]any{"urlSecret": "yardmaster-broker"}, "gateway": map[string]any{"enabled": true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			overlay := filepath.Join("dist", "chart-test-"+strings.ReplaceAll(name, " ", "-")) // it refers to ../../config
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(repositoryRoot, overlay)) })
			runInRepository(t, "hack/overlay", append([]string{overlay, "yardmaster:dev"}, row.overlay...)...)
			deployed, err := decode(runInRepository(t, "kustomize", "build", overlay))
			noError(t, err)
			want := comparableObjects(deployed)
			values := map[string]any{}
			maps.Copy(values, row.values)
			values["webhookCA"] = map[string]any{"create": false} // make deploy lets kubectl yardmaster webhook-ca create it
			values["crds"], values["image"] = map[string]any{"install": false}, map[string]any{"tag": "dev"}
			objects := mustRender(t, c, values)
			got := comparableObjects(objects)
			for _, object := range slices.Sorted(maps.Keys(want)) {
				if got[object] != want[object] {
					t.Errorf("%s of make deploy:\n%s\nof the chart:\n%s", object, want[object], got[object])
				}
				delete(got, object)
			}
			for object := range got {
				t.Errorf("only the chart has %s", object)
			}
		})
	}
}

// runInRepository runs a command in the repository's root and returns its output. Tools are in bin.
func runInRepository(t *testing.T, name string, args ...string) string {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join(repositoryRoot, "bin"))
	noError(t, err)
	t.Setenv("PATH", tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = repositoryRoot
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, problems.String())
	}
	return string(output)
}

// comparableObjects returns the objects as JSON by kind and name, without what describes the way to install.
func comparableObjects(objects []*unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "Namespace" { // helm install --create-namespace creates it
			continue
		}
		labels := o.GetLabels()
		for _, label := range []string{
			"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "yardmaster.dev/deployment", "yardmaster.dev/operator-namespace",
			"app.kubernetes.io/name", "app.kubernetes.io/part-of", // kustomize adds them to some objects only
		} {
			delete(labels, label)
		}
		o.SetLabels(labels)
		sortVariables(o)
		if webhooks, found := o.Object["webhooks"]; found && webhooks == nil { // no controller with webhooks is enabled
			o.Object["webhooks"] = []any{}
		}
		text, _ := json.MarshalIndent(o.Object, "", "  ")                                                      // it was decoded from JSON
		all[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = strings.ReplaceAll(string(text), `\n\n`, `\n`) // kustomize breaks lines of expressions twice
	}
	return all
}

// sortVariables sorts the environment of a Deployment's containers.
func sortVariables(o *unstructured.Unstructured) {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return
	}
	for _, entry := range containers {
		container, _ := entry.(map[string]any)
		variables, _ := container["env"].([]any)
		slices.SortFunc(variables, func(a, b any) int { return cmp.Compare(variableName(a), variableName(b)) })
	}
	_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}

func variableName(entry any) string {
	variable, _ := entry.(map[string]any)
	name, _ := variable["name"].(string)
	return name
}
