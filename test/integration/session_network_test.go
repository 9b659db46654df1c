package integration

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// somebodyElse is a field manager other than the operator's.
const somebodyElse = client.FieldOwner("somebody-else")

func (s *sessionTest) networkPolicy(name string) *networkingv1.NetworkPolicy {
	s.t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	mustGet(s.t, client.ObjectKey{Namespace: s.key.Namespace, Name: name}, policy)
	return policy
}

func TestObjectsOfARunningSessionAreRestored(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		s.Spec.Interactive, r.Spec.ActivityLease = true, true
	})
	s.startRunner()
	s.waitForPhase(v1alpha1.SessionRunning)
	ofSession, ofNamespace := metav1.ObjectMeta{Name: "fix-session"}, metav1.ObjectMeta{Name: agenticsession.DefaultDenyPolicyName}
	for _, object := range []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "fix"}}, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fix"}},
		&corev1.ServiceAccount{ObjectMeta: ofSession}, &rbacv1.Role{ObjectMeta: ofSession}, &rbacv1.RoleBinding{ObjectMeta: ofSession},
		&networkingv1.NetworkPolicy{ObjectMeta: ofSession}, &networkingv1.NetworkPolicy{ObjectMeta: ofNamespace},
	} {
		key := client.ObjectKey{Namespace: s.key.Namespace, Name: object.GetName()}
		mustGet(t, key, object)
		deleted := object.GetUID()
		mustDelete(t, object)
		poll.Until(t, fmt.Sprintf("%T %s to be created again", object, key.Name), func() bool {
			return cluster.Get(t.Context(), key, object) == nil && object.GetUID() != deleted &&
				metav1.IsControlledBy(object, s.getSession()) == (key.Name != ofNamespace.Name)
		})
	}
	for name, change := range map[string]string{ofSession.Name: `{"spec":{"ingress":[{}]}}`, ofNamespace.Name: `{"spec":{"egress":[{}]}}`} {
		changed := s.networkPolicy(name)
		want := changed.Spec.DeepCopy()
		mustPatch(t, changed, client.RawPatch(mergePatch, []byte(change)), somebodyElse)
		poll.Until(t, name+" to be restored", func() bool {
			is := s.networkPolicy(name)
			return is.ResourceVersion != changed.ResourceVersion && reflect.DeepEqual(&is.Spec, want)
		})
	}
}

func TestSessionDoesNotStartWhileAnotherNetworkPolicyAllowsMore(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, nil)
	open := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "open"}}
	open.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	mustCreate(t, open)
	s := createSessionIn(t, ns, "fix")
	s.waitForCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNetworkWidened)
	require.Equal(t, 0, len(s.listJobs()))
	mustDelete(t, open)
	s.waitForPhase(v1alpha1.SessionCreating)
	s.waitForCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied)

	open.ResourceVersion = ""
	mustCreate(t, open)
	s.waitForCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkWidened)
}

func (s *sessionTest) waitForCondition(conditionType string, status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	poll.Until(s.t, conditionType+"="+string(status)+" "+reason, func() bool {
		c := meta.FindStatusCondition(s.getSession().Status.Conditions, conditionType)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

func TestOnlyTheOperatorChangesThePolicyThatIsolatesSessions(t *testing.T) {
	t.Parallel()
	o := newRestrictedOperator(t)
	newPolicy := func() *networkingv1.NetworkPolicy { return agenticsession.NewDefaultDenyPolicy(o.watched) }
	wantDenied(t, "another user creates it", cluster.Create(t.Context(), newPolicy()))
	open := newPolicy()
	open.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	wantDenied(t, "the operator creates an open one", o.client.Create(t.Context(), open))
	policy := newPolicy()
	wantAllowed(t, "the operator creates it", o.client.Create(t.Context(), policy))
	wantDenied(t, "another user deletes it", cluster.Delete(t.Context(), policy))
	wantDenied(t, "another user deletes all", cluster.DeleteAllOf(t.Context(), &networkingv1.NetworkPolicy{}, client.InNamespace(o.watched)))
	wantDenied(t, "another user opens it", cluster.Patch(t.Context(), policy.DeepCopy(), client.RawPatch(mergePatch, []byte(`{"spec":{"egress":[{}]}}`))))
	wantDenied(t, "another user gives it an owner", cluster.Patch(t.Context(), policy.DeepCopy(), client.RawPatch(mergePatch,
		[]byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`))))
	wantAllowed(t, "the operator changes it", o.client.Patch(t.Context(), policy, client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	if other := o.newObject("networkpolicies.networking.k8s.io", o.watched, "other"); cluster.Create(t.Context(), other, client.DryRunAll) != nil {
		t.Error("another user cannot create other NetworkPolicies")
	}
	// The namespace controller can delete it, or no namespace with sessions could be deleted.
	mustDelete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.watched}})
	poll.Until(t, "the policy to be deleted with its namespace", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	})
}

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
