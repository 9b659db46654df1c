// Package away tests what users can do while no operator runs and nobody serves its webhooks, with objects of every kind in the
// states that an operator has left. No other operator may run there.
package away

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testenv.Main(m, "make test-integration", testenv.WithCRDs(&cluster))
}

type state struct {
	kind, title string
	manifest    string // the spec of the object as JSON
	change      string // a merge patch of the spec; empty if users do not change objects of this kind
	ready       string // the status or the reason of the condition Ready in this state; empty if the object has one replica
}

const (
	forAnHour = `"metadata": {"annotations": {"sim.localcluster.dev/duration": "1h"}}`
	oneStep   = `"containers": [{"name": "a", "image": "a:1"}]`
	onBroker  = `{"broker": {"engine": "NATS", "urlSecretRef": {"name": "broker"}}}`
	ofOrders  = `"image": "worker:1", "queues": [{"name": "orders"}]`
)

var states = []state{
	{"SequentialJob", "a step runs", `{"template": {` + forAnHour + `}, ` + oneStep + `}`, `{"jobHistoryLimit": 1}`, "Running"},
	{"SequentialJob", "suspended", `{"suspend": true, ` + oneStep + `}`, `{"jobHistoryLimit": 1}`, "Suspended"},
	{"SequentialJob", "finished", `{` + oneStep + `}`, `{"jobHistoryLimit": 1}`, "True"},
	{"Schedule", "waits for its next time", `{"schedule": "0 0 1 1 *", "sequentialJob": {"spec": {` + oneStep + `}}}`, `{"suspend": true}`, "True"},
	{"AgenticSession", "its runner runs", `{"prompt": "hello", "interactive": true, "runner": "long"}`, `{"suspend": true}`, "True"},
	{"AgenticSession", "stopped", `{"prompt": "hello", "suspend": true, "runner": "long"}`, `{"displayName": "another"}`, "Stopped"},
	{"SessionRunner", "sessions can use it", `{"image": "runner:1"}`, `{"image": "runner:2"}`, "True"},
	{"Queue", "its queue is on a broker", onBroker, `{"suspend": true}`, "True"},
	{"Queue", "it has no broker", `{}`, `{"suspend": true}`, "NoBroker"},
	{"WorkerPool", "has workers", `{"replicas": 1, ` + ofOrders + `}`, `{"replicas": 2}`, ""},
	{"WorkerPool", "has no workers", `{"replicas": 0, ` + ofOrders + `}`, `{"replicas": 2}`, "True"},
	{"Policy", "applied", `{"limits": {"maxReplicas": 3}}`, `{"precedence": 7}`, "True"},
	{"JobReport", "scanned", `{}`, "", "True"},
}

func (s *state) isReached(object *unstructured.Unstructured) bool {
	if s.ready == "" {
		replicas, _, _ := unstructured.NestedInt64(object.Object, "status", "replicas")
		return replicas == 1
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(item any) bool {
		condition, _ := item.(map[string]any)
		return condition["type"] == "Ready" && (condition["status"] == s.ready || condition["reason"] == s.ready)
	})
}

func (s *state) object(namespace, name string) *unstructured.Unstructured {
	spec := map[string]any{}
	if err := utilyaml.Unmarshal([]byte(s.manifest), &spec); err != nil {
		panic(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(s.kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// outcomes of what a user does.
const (
	works   = "works"
	refused = "refused by the webhook"
)

func outcomeOf(t *testing.T, err error) string {
	t.Helper()
	switch {
	case err == nil:
		return works
	case strings.Contains(err.Error(), "failed calling webhook"):
		return refused
	}
	t.Errorf("refused for another reason: %v", err)
	return err.Error()
}

// deleted deletes an object, and returns whether it disappears or waits for the operator.
func deleted(t *testing.T, object *unstructured.Unstructured, options ...client.DeleteOption) (outcome string) {
	t.Helper()
	if err := cluster.Delete(t.Context(), object, options...); err != nil {
		return outcomeOf(t, err)
	}
	poll.Until(t, "the deletion of "+object.GetKind()+" "+object.GetName()+" to end, or to wait for the operator alone", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			outcome = works
			return true
		}
		finalizers := object.GetFinalizers()
		outcome = "waits for the operator (`" + strings.Join(finalizers, "`, `") + "`)"
		return err == nil && len(finalizers) > 0 && !slices.ContainsFunc(finalizers, func(name string) bool { return !strings.HasPrefix(name, v1alpha1.Prefix) })
	})
	return outcome
}

// A change of metadata always works, and the deletion of an object that runs nothing never waits. docs/operations.md has the table.
func TestWhatUsersCanDoWhileTheOperatorIsAway(t *testing.T) {
	ns := cluster.NewNamespace(t, "away-", nil)
	secret := testbuilder.BrokerSecret(ns, "broker", "url", natstest.Start(t).ClientURL())
	runner := state{kind: "SessionRunner", manifest: `{"image": "runner:1", "template": {` + forAnHour + `, "spec": {"securityContext": {"runAsUser": 65532}, "containers": [{"name": "runner"}]}}}`}
	orders := state{kind: "Queue", manifest: onBroker}
	for _, object := range []client.Object{secret, runner.object(ns, "long"), orders.object(ns, "orders")} {
		require.NoError(t, cluster.Create(t.Context(), object))
	}
	leaveBehind(t, ns)
	removeOperator(t)

	table := []string{"| Kind | State | Create | Change the spec | Change labels, annotations | Delete | Delete with `--cascade=orphan` |", "|---|---|---|---|---|---|---|"}
	for i := range states {
		s := &states[i]
		object := s.object(ns, s.name("kept"))
		patch := func(text string) string {
			return outcomeOf(t, cluster.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
		}
		created, changed := "not by users", "not by users"
		if s.change != "" {
			created = outcomeOf(t, cluster.Create(t.Context(), s.object(ns, s.name("new"))))
			changed = patch(`{"spec": ` + s.change + `}`)
		}
		marked := patch(`{"metadata": {"labels": {"team": "a"}}}`)
		if again := patch(`{"metadata": {"annotations": {"example.com/note": "a"}}}`); again != marked {
			t.Errorf("%s: labels: %s, annotations: %s", s.name(""), marked, again)
		}
		ended := deleted(t, object)
		orphaned := "as above"
		if s.kind != "JobReport" { // of which a namespace has one
			orphaned = deleted(t, s.object(ns, s.name("orphaned")), client.PropagationPolicy(metav1.DeletePropagationOrphan))
		}
		if created == works {
			deleted(t, s.object(ns, s.name("new")))
		}
		require.True(t, marked == works, "%s, %s: metadata: %s", s.kind, s.title, marked)
		table = append(table, fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |", s.kind, s.title, created, changed, marked, ended, orphaned))
	}
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "operations.md"))
	require.NoError(t, err)
	_, documented, _ := strings.Cut(string(page), table[0])
	documented, _, _ = strings.Cut(table[0]+documented, "\n\n")
	want := strings.Join(table, "\n")
	require.True(t, want == documented, "docs/operations.md has another table; it should be:\n%s\n%s", want, cmp.Diff(documented, want))
	require.Equal(t, 1, runsOfTheSchedule(t, ns))
}

func (s *state) name(suffix string) string {
	if s.kind == "JobReport" {
		return v1alpha1.JobReportName
	}
	return strings.ReplaceAll(strings.ToLower(s.kind+"-"+s.title), " ", "-") + "-" + suffix
}

// leaveBehind lets an operator bring two objects into each state, and kills it. Each Schedule has a run.
func leaveBehind(t *testing.T, ns string) {
	binary, err := testenv.BuildOperator()
	require.NoError(t, err)
	operator, err := testenv.StartOperator(t.Context(), binary, cluster, "--namespaces", ns, "--report-namespaces", ns, "--report-interval", "1s")
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for i := range states {
		s := &states[i]
		for _, suffix := range []string{"kept", "orphaned"} {
			object := s.object(ns, s.name(suffix))
			err := cluster.Create(t.Context(), object)
			require.True(t, err == nil || s.kind == "JobReport" && apierrors.IsAlreadyExists(err), "creating the object: %v", err)
			objects = append(objects, object)
			poll.Until(t, "the state of "+object.GetName(), func() bool {
				return cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object) == nil && s.isReached(object)
			})
			if s.kind == "Schedule" {
				run := (&state{kind: "SequentialJob", manifest: states[2].manifest}).object(ns, object.GetName()+"-run")
				run.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(object, object.GroupVersionKind())})
				require.NoError(t, cluster.Create(t.Context(), run))
				// A run with an active step would wait for the operator.
				poll.Until(t, "the run "+run.GetName()+" to finish", func() bool {
					return cluster.Get(t.Context(), client.ObjectKeyFromObject(run), run) == nil && states[2].isReached(run)
				})
			}
		}
	}
	// The operator has nothing more to do that would change what an object waits for.
	poll.Until(t, "all objects to be in their state still", func() bool {
		for i, object := range objects {
			if cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object) != nil || !states[i/2].isReached(object) {
				return false
			}
		}
		return true
	})
	operator.Kill()
	t.Cleanup(func() { cluster.RemoveFinalizers(t, ns, "SequentialJob", "WorkerPool", "Queue") })
}

// removeOperator installs the webhooks, which nobody serves, and the admission policies.
func removeOperator(t *testing.T) {
	for _, file := range []string{"webhook/webhooks.yaml", "admission/policies.yaml"} {
		manifests, err := os.ReadFile(filepath.Join(testenv.Root(), "config", file))
		require.NoError(t, err)
		for _, object := range testenv.Decode(t, string(manifests)) {
			require.NoError(t, cluster.Create(t.Context(), object))
			t.Cleanup(func() { require.NoError(t, cluster.Delete(context.WithoutCancel(t.Context()), object)) })
		}
	}
	poll.Until(t, "the webhooks to apply", func() bool {
		err := cluster.Create(t.Context(), (&state{kind: "Policy", manifest: `{}`}).object(metav1.NamespaceDefault, "probe"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	})
}

// runsOfTheSchedule returns the number of runs whose Schedule was deleted, once the garbage collector has finished.
func runsOfTheSchedule(t *testing.T, ns string) (left int) {
	poll.Until(t, "the garbage collector to delete the run of the other Schedule", func() bool {
		var list v1alpha1.SequentialJobList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(ns)))
		left = 0
		owned := false
		for i := range list.Items {
			if strings.HasSuffix(list.Items[i].Name, "-run") {
				left++
				owned = owned || len(list.Items[i].OwnerReferences) > 0
			}
		}
		return !owned
	})
	return left
}
