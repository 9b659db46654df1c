package integration

import (
	"fmt"
	"reflect"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
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
