// Package gitops tests the health checks of config/gitops with the engines of Argo CD and Flux.
package gitops

import (
	"fmt"
	"os"
	"testing"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

const generation = 2

// kinds have the conditions Ready, Reconciling and Stalled.
var kinds = []string{"SequentialJob", "JobReport", "Queue", "WorkerPool", "Policy", "AgenticSession", "SessionRunner", "Schedule"}

// state is what the status of an object says. An empty value is a missing condition.
type state struct {
	observedGeneration          int64
	ready, reconciling, stalled string
}

func (s state) String() string {
	return fmt.Sprintf("generation %d, Ready %q, Reconciling %q, Stalled %q", s.observedGeneration, s.ready, s.reconciling, s.stalled)
}

// states returns every state that an object can be in: not reconciled yet, an earlier generation reconciled, and the
// current one with each combination of the conditions that docs/reference/states.md allows.
func states() []state {
	all := []state{{observedGeneration: -1}}
	for _, observed := range []int64{generation - 1, generation} {
		for _, ready := range []string{"True", "False", "Unknown"} {
			for _, progress := range [][2]string{{"True", "False"}, {"False", "True"}, {"False", "False"}} {
				all = append(all, state{observed, ready, progress[0], progress[1]})
			}
		}
	}
	return all
}

func (s state) object(kind string) *unstructured.Unstructured {
	conditions := []any{}
	for _, condition := range [][2]string{{"Ready", s.ready}, {"Reconciling", s.reconciling}, {"Stalled", s.stalled}} {
		if condition[1] != "" {
			conditions = append(conditions, map[string]any{"type": condition[0], "status": condition[1], "reason": "Because", "message": "of this"})
		}
	}
	fields := map[string]any{"observedGeneration": s.observedGeneration}
	if len(conditions) > 0 {
		fields["conditions"] = conditions
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "yardmaster.dev/v1alpha1", "kind": kind,
		"metadata": map[string]any{"name": "a", "namespace": "ns", "generation": int64(generation)},
		"status":   fields,
	}}
}

func computeStatus(t *testing.T, object *unstructured.Unstructured) status.Status {
	t.Helper()
	result, err := status.Compute(object)
	noError(t, err)
	return result.Status
}

func TestFluxSeesWhatKstatusSees(t *testing.T) {
	checks := map[string]*cel.StatusEvaluator{}
	var manifest struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	readYAML(t, "flux.yaml", &manifest)
	for _, check := range manifest.Spec.HealthCheckExprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			t.Fatalf("%s: %v", check.Kind, err)
		}
		checks[check.Kind] = evaluator
	}
	for _, kind := range kinds {
		check := checks[kind]
		if check == nil {
			t.Errorf("no check for %s", kind)
			continue
		}
		for _, s := range states() {
			object := s.object(kind)
			result, err := check.Evaluate(t.Context(), object)
			if err != nil {
				t.Fatalf("%s, %s: %v", kind, s, err)
			}
			if want := computeStatus(t, object); string(result.Status) != string(want) {
				t.Errorf("%s, %s: Flux says %s, kstatus %s", kind, s, result.Status, want)
			}
		}
	}
}

// Argo CD has one more status than kstatus: suspended work is not in progress.
func TestArgoCDSeesWhatKstatusSees(t *testing.T) {
	script := argoScript(t)
	for _, kind := range kinds {
		for _, s := range states() {
			object := s.object(kind)
			want := map[status.Status]string{
				status.CurrentStatus: "Healthy", status.FailedStatus: "Degraded", status.InProgressStatus: "Progressing",
			}[computeStatus(t, object)]
			if isUpToDate := s.observedGeneration == generation; isUpToDate && want == "Progressing" && s.reconciling == "False" {
				want = "Suspended"
			}
			if got, message := runLua(t, script, object); got != want || message == "" {
				t.Errorf("%s, %s: Argo CD says %s (%q), want %s", kind, s, got, message, want)
			}
		}
	}
}

func argoScript(t *testing.T) string {
	t.Helper()
	var manifest struct {
		Data map[string]string `json:"data"`
	}
	readYAML(t, "argocd.yaml", &manifest)
	var customizations map[string]map[string]string
	noError(t, yaml.UnmarshalStrict([]byte(manifest.Data["resource.customizations"]), &customizations))
	script := customizations["yardmaster.dev/*"]["health.lua"]
	if script == "" {
		t.Fatal("there is no script")
	}
	return script
}

// runLua runs a health check as Argo CD does: the object is a global, and the standard libraries that reach the system are missing.
func runLua(t *testing.T, script string, object *unstructured.Unstructured) (health, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		noError(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	l.SetGlobal("obj", toLua(l, object.Object))
	noError(t, l.DoString(script))
	result, isTable := l.Get(-1).(*lua.LTable)
	if !isTable {
		t.Fatalf("the script returns %s", l.Get(-1))
	}
	if text, isString := result.RawGetString("message").(lua.LString); isString {
		message = string(text)
	}
	return result.RawGetString("status").String(), message
}

func toLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, element := range v {
			table.Append(toLua(l, element))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, element := range v {
			table.RawSetString(key, toLua(l, element))
		}
		return table
	}
	return lua.LNil
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile("../../../config/gitops/" + name)
	noError(t, err)
	noError(t, yaml.Unmarshal(raw, into))
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
