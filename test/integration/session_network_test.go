package integration

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
)

// somebodyElse is a field manager other than the operator's.
const somebodyElse = client.FieldOwner("somebody-else")

// networkPolicy reads a NetworkPolicy of the session's namespace; nil if it does not exist.
func (s *sessionTest) networkPolicy(name string) *networkingv1.NetworkPolicy {
	s.t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	err := cluster.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: name}, policy)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return policy
}

func (s *sessionTest) isDefaultDenyCurrent() bool {
	policy := s.networkPolicy(agenticsession.DefaultDenyPolicyName)
	return policy != nil && policy.DeletionTimestamp.IsZero() && agenticsession.IsNetworkPolicyCurrent(policy, agenticsession.NewDefaultDenyPolicy(s.key.Namespace))
}

// holdPod keeps the session's Pod, as a runner does that ignores SIGTERM, until the end of the test.
func (s *sessionTest) holdPod() {
	s.t.Helper()
	const finalizer = "test.yardmaster.dev/ignores-sigterm"
	pod := s.waitForPod()
	patch := func(list string) error {
		return cluster.Patch(s.t.Context(), pod, client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":`+list+`}}`)))
	}
	if err := patch(`["` + finalizer + `"]`); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := client.IgnoreNotFound(cluster.Patch(context.Background(), pod, client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":null}}`)))); err != nil {
			s.t.Error(err)
		}
	})
}

func TestNetworkOfADeletedSessionStaysClosedUntilItsPodIsGone(t *testing.T) {
	t.Parallel()
	s := createSession(t)
	s.waitForPhase(v1alpha1.SessionCreating)
	s.holdPod()
	if !s.isDefaultDenyCurrent() || len(s.networkPolicy(agenticsession.DefaultDenyPolicyName).OwnerReferences) > 0 {
		t.Fatalf("the namespace has no policy without an owner that denies everything: %+v", s.networkPolicy(agenticsession.DefaultDenyPolicyName))
	}
	if jobs := s.listJobs(); jobs[0].CreationTimestamp.Before(&s.networkPolicy(agenticsession.DefaultDenyPolicyName).CreationTimestamp) {
		t.Error("the Job is older than the policy")
	}
	mustDelete(t, s.getSession())
	poll.Until(t, "the garbage collector to delete the session's own policy", func() bool { return s.networkPolicy("fix-session") == nil })
	if !s.isDefaultDenyCurrent() {
		t.Error("the policy of the namespace was deleted with the session")
	}
	// Somebody deletes it, too, where no admission policy prevents that.
	mustDelete(t, s.networkPolicy(agenticsession.DefaultDenyPolicyName))
	poll.Until(t, "the policy to be restored for the Pod of the deleted session", s.isDefaultDenyCurrent)
}

func TestChangedNetworkPoliciesOfASessionAreRestored(t *testing.T) {
	t.Parallel()
	s := createSession(t)
	s.waitForPhase(v1alpha1.SessionCreating)
	for name, change := range map[string]string{
		"fix-session":                        `{"spec":{"ingress":[{}]}}`,
		agenticsession.DefaultDenyPolicyName: `{"spec":{"egress":[{}]}}`,
	} {
		version := s.networkPolicy(name).ResourceVersion
		mustPatch(t, s.networkPolicy(name), client.RawPatch(mergePatch, []byte(change)), somebodyElse)
		poll.Until(t, name+" to be restored", func() bool {
			policy := s.networkPolicy(name)
			return policy.ResourceVersion != version && len(policy.Spec.Ingress)+len(policy.Spec.Egress) == map[string]int{"fix-session": 1}[name]
		})
	}
	mustDelete(t, s.networkPolicy(agenticsession.DefaultDenyPolicyName))
	poll.Until(t, "the deleted policy to be restored", s.isDefaultDenyCurrent)
}

func TestSessionDoesNotStartWhileAnotherNetworkPolicyAllowsMore(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, nil)
	open := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "open"}}
	open.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	mustCreate(t, open)
	s := createSessionIn(t, ns, "fix")
	s.waitForCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNetworkWidened)
	if jobs := s.listJobs(); len(jobs) > 0 {
		t.Errorf("the session has a Job: %s", jobs[0].Name)
	}
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
	wantDenied := func(title string, err error) {
		t.Helper()
		if !isDeniedByPolicy(err) {
			t.Errorf("%s: %v, want a denial by an admission policy", title, err)
		}
	}
	wantDenied("another user creates it", cluster.Create(t.Context(), newPolicy()))
	open := newPolicy()
	open.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	wantDenied("the operator creates an open one", o.client.Create(t.Context(), open))
	policy := newPolicy()
	if err := o.client.Create(t.Context(), policy); err != nil {
		t.Fatalf("the operator cannot create it: %v", err)
	}
	wantDenied("another user deletes it", cluster.Delete(t.Context(), policy))
	wantDenied("another user deletes all", cluster.DeleteAllOf(t.Context(), &networkingv1.NetworkPolicy{}, client.InNamespace(o.watched)))
	wantDenied("another user opens it", cluster.Patch(t.Context(), policy.DeepCopy(), client.RawPatch(mergePatch, []byte(`{"spec":{"egress":[{}]}}`))))
	wantDenied("another user gives it an owner", cluster.Patch(t.Context(), policy.DeepCopy(), client.RawPatch(mergePatch,
		[]byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`))))
	if err := o.client.Patch(t.Context(), policy, client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
		t.Errorf("the operator cannot change it: %v", err)
	}
	if other := o.newObject("networkpolicies.networking.k8s.io", o.watched, "other"); cluster.Create(t.Context(), other, client.DryRunAll) != nil {
		t.Error("another user cannot create other NetworkPolicies")
	}
	var types []networkingv1.PolicyType
	if types = policy.Spec.PolicyTypes; !slices.Contains(types, networkingv1.PolicyTypeIngress) || !slices.Contains(types, networkingv1.PolicyTypeEgress) {
		t.Errorf("it applies to %v", types)
	}
	// The namespace controller can delete it, or no namespace with sessions could be deleted.
	mustDelete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.watched}})
	poll.Until(t, "the policy to be deleted with its namespace", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	})
}
