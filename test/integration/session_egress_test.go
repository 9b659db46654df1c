package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func allowHosts(hosts ...v1alpha1.EgressHost) func(*v1alpha1.AgenticSession, *v1alpha1.SessionRunner) {
	return func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		r.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: hosts}}
	}
}

// proxyObject reads an object of the proxy of the session's namespace into the given one; it returns false if it does
// not exist.
func (s *sessionTest) proxyObject(into client.Object) bool {
	s.t.Helper()
	err := cluster.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: workload.Name}, into)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

func (s *sessionTest) getRunner() *v1alpha1.SessionRunner {
	s.t.Helper()
	runner := &v1alpha1.SessionRunner{}
	mustGet(s.t, client.ObjectKey{Namespace: s.key.Namespace, Name: "default"}, runner)
	return runner
}

func (s *sessionTest) patchRunner(spec string) {
	s.t.Helper()
	mustPatch(s.t, s.getRunner(), client.RawPatch(mergePatch, []byte(`{"spec":`+spec+`}`)))
}

func TestHostsOfASessionRunnerHaveAProxyInItsNamespace(t *testing.T) {
	t.Parallel()
	s := createSession(t, allowHosts("api.example.com"))
	s.waitForPhase(v1alpha1.SessionCreating)
	poll.Until(t, "the proxy to be ready", func() bool {
		return meta.IsStatusConditionTrue(s.getRunner().Status.Conditions, v1alpha1.ConditionEgressProxyReady)
	})
	deployment, service, config, policy := &appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &networkingv1.NetworkPolicy{}
	for _, object := range []client.Object{deployment, service, config, policy} {
		require.True(t, s.proxyObject(object), "%T does not exist", object)
	}

	// Deleted and changed objects are restored.
	mustDelete(t, service)
	poll.Until(t, "the Service to be restored", func() bool { return s.proxyObject(&corev1.Service{}) })
	for _, change := range []struct {
		object client.Object
		patch  string
	}{{config, `{"data":{"config.json":"{}"}}`}, {policy, `{"spec":{"egress":[{}]}}`}} {
		mustPatch(t, change.object, client.RawPatch(mergePatch, []byte(change.patch)), somebodyElse)
	}
	poll.Until(t, "the changed objects to be restored", func() bool {
		return s.proxyObject(config) && strings.Contains(config.Data["config.json"], "api.example.com:443") && s.proxyObject(policy) && len(policy.Spec.Egress) == 2
	})

	// Without hosts, the proxy stays until the sessions that may use it have ended.
	s.patchRunner(`{"network":{"egress":null}}`)
	poll.Until(t, "the SessionRunner to have no proxy", func() bool {
		return meta.FindStatusCondition(s.getRunner().Status.Conditions, v1alpha1.ConditionEgressProxyReady) == nil
	})
	require.True(t, s.proxyObject(deployment) && deployment.DeletionTimestamp == nil, "the proxy was deleted while a session runs")
	s.patchSpec(`{"suspend": true}`)
	s.waitForPhase(v1alpha1.SessionStopped)
	for _, object := range []client.Object{deployment, service, config, policy} {
		poll.Until(t, "the objects of the proxy to be deleted", func() bool { return !s.proxyObject(object) })
	}
}

func TestProxyOfANamespaceNeverReplacesAnObjectOfSomebodyElse(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, nil)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: workload.Name}, Data: map[string]string{"a": "b"}}
	mustCreate(t, foreign)
	s := createSessionIn(t, ns, "fix", allowHosts("api.example.com"))
	s.waitForCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonEgressProxyNotReady)
	poll.Until(t, "the SessionRunner to report the ConfigMap", func() bool {
		c := meta.FindStatusCondition(s.getRunner().Status.Conditions, v1alpha1.ConditionEgressProxyReady)
		return c != nil && c.Reason == v1alpha1.ReasonEgressProxyRefused && strings.Contains(c.Message, "ConfigMap "+workload.Name)
	})
	if config := (&corev1.ConfigMap{}); !s.proxyObject(config) || config.Data["a"] != "b" || len(config.Data) != 1 || len(config.OwnerReferences) > 0 {
		t.Errorf("the ConfigMap was changed: %+v", config)
	}
	require.Equal(t, 0, len(s.listJobs()))
	mustDelete(t, foreign)
	s.patchRunner(`{"network":{"egress":[{"hosts":["api.example.com","www.example.com"]}]}}`) // or after half a minute
	s.waitForPhase(v1alpha1.SessionCreating)
}

func TestInvalidHostsAreRefusedByTheAPIServer(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "SessionRunner", []invalidSpec{
		{"hosts and a network", egress(`hosts: [api.example.com], to: {ipBlock: {cidr: 10.0.0.0/8}}`), "egress[0]: set exactly one of to, profile"},
		{"hosts and ports", egress(`hosts: [api.example.com], ports: [{port: 443}]`), "egress[0].ports: set ports, or hosts with their ports"},
		{"an address as a host", egress(`hosts: [10.0.0.1]`), "hosts[0]: should match"},
		{"a host in upper case", egress(`hosts: [API.example.com]`), "hosts[0]: should match"},
		{"a port that does not exist", egress(`hosts: ["api.example.com:65536"]`), "hosts[0]: should match"},
		{"no hosts", egress(`hosts: []`), "hosts: should have at least 1 items"},
	})
}

// The objects of a proxy have no owner of the operator's kinds, so the admission policy knows them by name and label.
func writesObjectsOfProxiesOnlyByTheirName(t *testing.T, o *restrictedOperator) {
	own := func(resource, name string) *unstructured.Unstructured {
		object := o.newObject(resource, o.watched, name)
		object.SetName(name)
		object.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, workload.Label: "true"})
		return object
	}
	for _, resource := range []string{"configmaps", "services", "deployments.apps", "networkpolicies.networking.k8s.io"} {
		wantAllowed(t, resource+" of a proxy", o.attempt("create", own(resource, workload.Name)))
		wantDenied(t, resource+" with another name", o.attempt("create", own(resource, "other")))
	}
	wantDenied(t, "a Secret with the name of a proxy", o.attempt("create", own("secrets", workload.Name)))
	foreign := o.newObject("deployments.apps", o.watched, workload.Name)
	foreign.SetName(workload.Name)
	o.create(foreign)
	for _, verb := range []string{"patch", "delete"} {
		wantDenied(t, verb+" of somebody else's Deployment with the name of a proxy", o.attempt(verb, foreign))
	}
}
