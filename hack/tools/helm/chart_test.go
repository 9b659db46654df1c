// Package helm tests the chart with Helm's own renderer and linter.
package helm

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const (
	chartDirectory = "../../../charts/yardmaster"
	release        = "platform" // the namespace, too
)

type (
	fields = map[string]any
	list   = []any
)

// supportedVersions are the oldest and the newest release of Kubernetes in docs/support.md.
var supportedVersions = []string{"1.33.0", "1.36.0"}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDirectory)
	noError(t, err)
	return c
}

// render returns the objects that the chart creates with these values.
func render(t *testing.T, c *chart.Chart, values fields) ([]*unstructured.Unstructured, error) {
	t.Helper()
	options := common.ReleaseOptions{Name: release, Namespace: release, IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(c, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), c, all)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		found, err := decode(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func mustRender(t *testing.T, c *chart.Chart, values fields) []*unstructured.Unstructured {
	t.Helper()
	objects, err := render(t, c, values)
	noError(t, err)
	return objects
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func decode(manifest string) (objects []*unstructured.Unstructured, err error) {
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// text returns a field of an object, or nothing if it lacks the field.
func text(object any, path ...string) string {
	value, _, _ := unstructured.NestedString(object.(fields), path...)
	return value
}

// choices are the values that change which objects there are, and how.
var choices = map[string]list{
	"namespaces":                   {list{"default"}, list{"team-a", "team-b"}, list{"*"}},
	"controllers":                  {list{"*"}, list{"*", "-agenticsession"}, list{"queue", "workerpool"}, list{"jobreport"}},
	"report.namespaces":            {list{}, list{"team-a", "team-c"}},
	"report.openReports":           {false, true},
	"broker.urlSecret":             {"", "broker/address"},
	"certManager.enabled":          {false, true},
	"creatorPolicy.enabled":        {false, true},
	"networkPolicy.apiServerCIDRs": {list{}, list{"192.0.2.1/32", "192.0.2.2/32"}},
	"clusterObjects.create":        {true, false},
}

// pairs calls visit with each pair of values of each two choices, beside the first values of the others.
func pairs(visit func(values fields)) {
	paths := slices.Sorted(maps.Keys(choices))
	for i, one := range paths {
		for _, other := range paths[:i] {
			for _, value := range choices[one] {
				for _, beside := range choices[other] {
					visit(chosen(fields{one: value, other: beside}))
				}
			}
		}
	}
}

// chosen returns the values with the first of each choice, unless another is given.
func chosen(given fields) fields {
	values := fields{"crds": fields{"install": false}, "monitoring": allMonitoring(), "gateway": fields{"enabled": true}}
	for path, options := range choices {
		value, isGiven := given[path]
		if !isGiven {
			value = options[0]
		}
		_ = unstructured.SetNestedField(values, value, strings.Split(path, ".")...)
	}
	if given["clusterObjects.create"] == false {
		values["flags"], values["gateway"] = fields{"cluster-id": "a"}, fields{"enabled": false}
	}
	return values
}

func allMonitoring() fields {
	return fields{"serviceMonitor": true, "podMonitor": true, "jobReportAlerts": true, "queueAlerts": true, "labels": fields{"release": "prometheus"}}
}

// refusedWithoutClusterObjects reports whether the values need objects without a namespace, which they exclude.
func refusedWithoutClusterObjects(values fields) bool {
	is := func(fields ...string) bool {
		value, _, _ := unstructured.NestedBool(values, fields...)
		return value
	}
	watched, _, _ := unstructured.NestedStringSlice(values, "namespaces")
	return !is("clusterObjects", "create") && (is("certManager", "enabled") || is("creatorPolicy", "enabled") || slices.Contains(watched, "*"))
}

func TestEveryPairOfValuesRendersDistinctObjectsInItsNamespaces(t *testing.T) {
	c, count := loadChart(t), 0
	// Each rendering parses all templates, and these depend on nothing.
	c.Templates = slices.DeleteFunc(c.Templates, func(file *common.File) bool { return strings.Contains(file.Name, ".crd.") })
	pairs(func(values fields) {
		count++
		objects, err := render(t, c, values)
		if refusedWithoutClusterObjects(values) {
			if err == nil {
				t.Fatalf("%v: not refused", values)
			}
			return
		}
		if err != nil {
			t.Fatalf("%v: %v", values, err)
		}
		allowed := []string{release, "default", "team-a", "team-b", "team-c"}
		clusterObjects, _, _ := unstructured.NestedBool(values, "clusterObjects", "create")
		if clusterObjects {
			allowed = append(allowed, "")
		}
		found := map[string]bool{}
		for _, object := range objects {
			name := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
			if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetName() == "" || found[name] {
				t.Fatalf("%v: %s is incomplete, or there twice", values, name)
			}
			if !slices.Contains(allowed, object.GetNamespace()) {
				t.Fatalf("%v: %s is in an unexpected namespace", values, name)
			}
			found[name] = true
		}
		if !found["Deployment platform/yardmaster"] || found["ClusterRoleBinding /yardmaster-identity-platform"] != clusterObjects {
			t.Fatalf("%v: the Deployment or the binding of the operator is wrong among %v", values, slices.Sorted(maps.Keys(found)))
		}
	})
	t.Logf("%d pairs", count)
}

func TestLintFindsNothingWithDefaultsAndWithAllOptions(t *testing.T) {
	all := fields{}
	for path, options := range choices {
		_ = unstructured.SetNestedField(all, options[len(options)-1], strings.Split(path, ".")...)
	}
	all["controllers"], all["gateway"], all["clusterObjects"] = list{"*"}, fields{"enabled": true}, fields{"create": true}
	directory, err := filepath.Abs(chartDirectory)
	noError(t, err)
	for name, values := range map[string]fields{"defaults": {}, "all options": all} {
		for _, version := range supportedVersions {
			kubeVersion, err := common.ParseKubeVersion(version)
			noError(t, err)
			for _, message := range lint.RunAll(directory, values, release, lint.WithKubeVersion(kubeVersion)).Messages {
				if message.Severity >= support.WarningSev {
					t.Errorf("%s, Kubernetes %s: %s", name, version, message)
				}
			}
		}
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	c := loadChart(t)
	without, clusterID := fields{"create": false}, fields{"cluster-id": "a"}
	for name, values := range map[string]fields{
		"a namespace of Kubernetes":            {"namespaces": list{"kube-system"}},
		"reports on such a one":                {"report": fields{"namespaces": list{"kube-public"}}},
		"queues without the ID of the cluster": {"clusterObjects": without},
		"the gateway without its ClusterRole":  {"clusterObjects": without, "flags": clusterID, "gateway": fields{"enabled": true}},
		"unknown controller":                   {"controllers": list{"queues"}},
		"no namespace":                         {"namespaces": list{}},
		"namespace as a list":                  {"namespaces": "team-a"},
		"name of a namespace":                  {"namespaces": list{"Team_A"}},
		"replicas as text":                     {"replicas": "two"},
		"gateway as a boolean":                 {"gateway": true},
		"digest without sha256":                {"image": fields{"digest": "latest"}},
		"unknown engine":                       {"broker": fields{"engine": "Kafka"}},
		"flag of the gateway":                  {"flags": fields{"max-body-bytes": 20}},
		"flag of the operator":                 {"gateway": fields{"flags": fields{"concurrency": 20}}},
	} {
		if _, err := render(t, c, values); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The names are those of the schema, which has all values of values.yaml and those that are empty there.
func TestEveryMisspelledValueIsRefused(t *testing.T) {
	c := loadChart(t)
	var schema fields
	noError(t, json.Unmarshal(c.Schema, &schema))
	misspelled := 0
	var misspell func(schema fields, wrap func(any) fields)
	misspell = func(schema fields, wrap func(any) fields) {
		properties, _, _ := unstructured.NestedMap(schema, "properties")
		names := slices.Collect(maps.Keys(properties))
		flags, _, _ := unstructured.NestedStringSlice(schema, "propertyNames", "enum")
		for _, name := range append(names, flags...) {
			misspelled++
			values := wrap(fields{name + "s": "a"})
			if _, err := render(t, c, values); err == nil {
				t.Errorf("%v is not refused", values)
			}
		}
		for name, nested := range properties {
			misspell(nested.(fields), func(value any) fields { return wrap(fields{name: value}) })
		}
		if items, found, _ := unstructured.NestedMap(schema, "items"); found {
			misspell(items, func(value any) fields { return wrap(list{value}) })
		}
	}
	misspell(schema, func(value any) fields { return value.(fields) })
	if misspelled < 120 {
		t.Errorf("only %d values were misspelled", misspelled)
	}
	for name := range c.Values {
		if _, found, _ := unstructured.NestedMap(schema, "properties", name); !found {
			t.Errorf("the schema lacks %s", name)
		}
	}
}

// Each object without a namespace either belongs to one release, and its name shows which, or to all of them, and no release deletes it.
func TestReleasesShareOnlyObjectsThatAreKept(t *testing.T) {
	c := loadChart(t)
	for _, namespaces := range [][]any{{"team-a"}, {"*"}} {
		objects := mustRender(t, c, fields{
			"namespaces": namespaces, "gateway": fields{"enabled": true}, "creatorPolicy": fields{"enabled": namespaces[0] == "*"},
		})
		kept := map[string]int{}
		for _, object := range objects {
			if object.GetNamespace() != "" {
				continue
			}
			switch isKept := object.GetAnnotations()["helm.sh/resource-policy"] == "keep"; {
			case isKept:
				kept[object.GetKind()]++
			case !strings.HasSuffix(object.GetName(), "-"+release):
				t.Errorf("%s %s is neither kept nor of this release", object.GetKind(), object.GetName())
			}
			for _, path := range [][]string{{"roleRef", "name"}, {"spec", "policyName"}} {
				if name := text(object.Object, path...); name != "" && name != object.GetName() {
					t.Errorf("%s %s refers to %s", object.GetKind(), object.GetName(), name)
				}
			}
		}
		if kept["CustomResourceDefinition"] != 8 || kept["ValidatingAdmissionPolicy"] != 8 || kept["ValidatingAdmissionPolicyBinding"] != 8 || kept["ClusterRole"] == 0 {
			t.Errorf("the chart keeps %v", kept)
		}
		rest := mustRender(t, c, fields{"namespaces": namespaces, "crds": fields{"install": false}})
		for _, object := range rest {
			if object.GetAnnotations()["helm.sh/resource-policy"] != "" {
				t.Errorf("with crds.install=false, the release has %s %s", object.GetKind(), object.GetName())
			}
		}
	}
}

// What an operator without ClusterRoles cannot do is disabled, unless the user asks for it.
func TestWithoutClusterObjectsSessionsAndWebhooksAreDisabled(t *testing.T) {
	c := loadChart(t)
	for want, controllers := range map[string]fields{
		"*,-agenticsession,-egressproxy": {},
		"*,agenticsession,-egressproxy":  {"controllers": list{"*", "agenticsession"}},
		"sequentialjob":                  {"controllers": list{"sequentialjob"}},
	} {
		values := fields{
			"clusterObjects": fields{"create": false}, "flags": fields{"cluster-id": "a", "metrics-bind-address": ":8443"},
			"broker": fields{"urlSecret": "broker", "engine": "Asynq"},
		}
		maps.Copy(values, controllers)
		objects := mustRender(t, c, values)
		got := variables(objects)
		for name, value := range map[string]string{
			"CONTROLLERS": want, "WEBHOOK": "false", "METRICS_BIND_ADDRESS": ":8443", "CLUSTER_ID": "a", "BROKER_URL_SECRET": "broker", "BROKER_ENGINE": "Asynq",
		} {
			if got["YARDMASTER_"+name] != value {
				t.Errorf("%s is %v, want %s", name, got["YARDMASTER_"+name], value)
			}
		}
		for _, object := range objects {
			if object.GetName() == "yardmaster-agenticsession" && !strings.Contains(want, ",agenticsession") {
				t.Errorf("with controllers %s, there is %s %s", want, object.GetKind(), object.GetName())
			}
		}
	}
}

func variables(objects []*unstructured.Unstructured) fields {
	all := fields{}
	for _, object := range objects {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			for _, entry := range container.(fields)["env"].(list) {
				variable := entry.(fields)
				all[variable["name"].(string)] = variable["value"]
			}
		}
	}
	return all
}

// The API server trusts the authority that the operator mounts, and calls its secret path. Where somebody else creates the authority,
// the chart writes nothing that would replace it.
func TestWebhooksTrustTheCertificateAuthorityOfTheRelease(t *testing.T) {
	c := loadChart(t)
	for title, row := range map[string]struct {
		values  fields
		created bool
		mounted string
	}{
		"by default":   {fields{}, true, "yardmaster-webhook-ca"},
		"cert-manager": {fields{"certManager": fields{"enabled": true}}, false, "yardmaster-webhook-certs"},
		"by somebody":  {fields{"webhookCA": fields{"create": false}}, false, "yardmaster-webhook-ca"},
	} {
		t.Run(title, func(t *testing.T) {
			objects := mustRender(t, c, row.values)
			var data map[string]string
			mounted, authorities, paths := "", map[string]bool{}, map[string]bool{}
			for _, o := range objects {
				switch {
				case o.GetKind() == "Secret" && o.GetName() == "yardmaster-webhook-ca":
					data, _, _ = unstructured.NestedStringMap(o.Object, "data")
				case o.GetKind() == "Deployment" && o.GetName() == "yardmaster":
					volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "volumes")
					mounted = text(volumes[0], "secret", "secretName")
				case strings.HasSuffix(o.GetKind(), "WebhookConfiguration"):
					webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
					for _, webhook := range webhooks {
						segment, _, _ := strings.Cut(strings.TrimPrefix(text(webhook, "clientConfig", "service", "path"), "/"), "/")
						authorities[text(webhook, "clientConfig", "caBundle")], paths[segment] = true, true
					}
				}
			}
			if mounted != row.mounted {
				t.Errorf("the operator mounts %s, want %s", mounted, row.mounted)
			}
			if !row.created {
				if data != nil || len(authorities) != 1 || !authorities[""] {
					t.Errorf("the chart creates an authority: %v, %v", data, authorities)
				}
				return
			}
			segment, err := base64.StdEncoding.DecodeString(data["path"])
			if err != nil || len(segment) < 20 {
				t.Fatalf("the path is %q: %v", segment, err)
			}
			if data["ca.key"] == "" || len(authorities) != 1 || !authorities[data["ca.crt"]] || len(paths) != 1 || !paths[string(segment)] {
				t.Errorf("the Secret and the webhooks differ: %v, %v, %v", data, authorities, paths)
			}
		})
	}
}

const repositoryRoot = "../../.."

// Both ways to install create the same objects with the same settings. The chart is generated from the manifests,
// so a setting that only one of them has, or applies differently, is an error of the generator.
func TestChartCreatesTheSameObjectsAsMakeDeploy(t *testing.T) {
	c := loadChart(t)
	const components = "cert-manager,admission-policy,webhook-network-policy,prometheus,jobreport-alerts,jobreport-openreports," +
		"queue-alerts,default-broker,gateway"
	twoNamespaces, broker := list{"team-a", "team-b"}, fields{"urlSecret": "yardmaster-broker"}
	for name, row := range map[string]struct {
		overlay []string // arguments of hack/overlay after the image
		values  fields
	}{
		"defaults": {[]string{"*", "default", "", "", "", release}, nil},
		"some controllers in two namespaces": {
			[]string{"queue,workerpool", "team-a,team-b", "", "", "3", release},
			fields{"controllers": list{"queue", "workerpool"}, "namespaces": twoNamespaces, "replicas": 3},
		},
		"settings of the operator": {
			[]string{"*", "team-a", "", "", "", release, "", "YARDMASTER_CONCURRENCY=20,YARDMASTER_REPORT_INTERVAL=1m"},
			fields{"namespaces": list{"team-a"}, "flags": fields{"concurrency": "20", "report-interval": "1m"}},
		},
		"schedules and sequences only": {
			[]string{"schedule,sequentialjob", "team-a", "", "", "", release},
			fields{"controllers": list{"schedule", "sequentialjob"}, "namespaces": list{"team-a"}},
		},
		"sessions without schedules": {
			[]string{"*,-schedule", "team-a", "", "", "", release}, fields{"controllers": list{"*", "-schedule"}, "namespaces": list{"team-a"}},
		},
		"the gateway in two namespaces": {
			[]string{"*", "team-a,team-b", "default-broker,gateway", "", "", release},
			fields{"namespaces": twoNamespaces, "gateway": fields{"enabled": true}, "broker": broker},
		},
		"reports only": {
			[]string{"jobreport", "*", "", "team-c", "", release},
			fields{"controllers": list{"jobreport"}, "namespaces": list{"*"}, "report": fields{"namespaces": list{"team-c"}}},
		},
		"all components in all namespaces": {
			[]string{"*", "*", components, "team-c", "", release, "release=prometheus"},
			fields{
				"namespaces": list{"*"}, "certManager": fields{"enabled": true}, "creatorPolicy": fields{"enabled": true}, "broker": broker,
				"networkPolicy": fields{"apiServerCIDRs": list{"192.0.2.0/24"}}, "gateway": fields{"enabled": true}, "monitoring": allMonitoring(),
				"report": fields{"openReports": true, "namespaces": list{"team-c"}},
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
			values := fields{}
			maps.Copy(values, row.values)
			values["webhookCA"] = fields{"create": false} // make deploy lets kubectl yardmaster webhook-ca create it
			values["crds"], values["image"] = fields{"install": false}, fields{"tag": "dev"}
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
			o.Object["webhooks"] = list{}
		}
		text, _ := json.MarshalIndent(o.Object, "", "  ")                                                      // it was decoded from JSON
		all[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = strings.ReplaceAll(string(text), `\n\n`, `\n`) // kustomize breaks lines of expressions twice
	}
	return all
}

func sortVariables(o *unstructured.Unstructured) {
	containers, found, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		variables, _ := container.(fields)["env"].(list)
		slices.SortFunc(variables, func(a, b any) int { return cmp.Compare(text(a, "name"), text(b, "name")) })
	}
	if found {
		_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
	}
}
