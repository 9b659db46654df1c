package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// sessionPolicy is the admission policy without which the operator of all tests starts no session. It denies nothing, as those of
// the installation would deny what the operator of all tests, an administrator, does.
const sessionPolicy = "test-session-protection"

// newAdmissionPolicy returns a policy for a resource that does not exist, and its binding.
func newAdmissionPolicy(name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"test.yardmaster.dev"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	return policy, binding
}

// createSessionPolicy creates sessionPolicy before all tests. As the CRDs, it remains in the cluster: it denies nothing.
func createSessionPolicy(ctx context.Context) error {
	policy, binding := newAdmissionPolicy(sessionPolicy)
	for _, object := range []client.Object{policy, binding} {
		if err := client.IgnoreAlreadyExists(cluster.Create(ctx, object)); err != nil {
			return err
		}
	}
	return nil
}

func TestAnAdmissionPolicyIsEnforcedOnlyIfItAndItsBindingDenyEverywhere(t *testing.T) {
	t.Parallel()
	type (
		policy  = admissionregistrationv1.ValidatingAdmissionPolicy
		binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	)
	for name, test := range map[string]struct {
		change func(p *policy, b *binding)
		reader string // a user without permissions, instead of an administrator
		want   string // empty if the policy is enforced
	}{
		"as-installed":   {change: func(*policy, *binding) {}},
		"fail-by-name":   {change: func(p *policy, _ *binding) { p.Spec.FailurePolicy = new(admissionregistrationv1.Fail) }},
		"also-audits":    {change: func(_ *policy, b *binding) { b.Spec.ValidationActions = append(b.Spec.ValidationActions, "Audit") }},
		"no-policy":      {change: func(p *policy, _ *binding) { p.Name = "" }, want: "ValidatingAdmissionPolicy no-policy does not exist"},
		"no-binding":     {change: func(_ *policy, b *binding) { b.Name = "" }, want: "ValidatingAdmissionPolicyBinding no-binding does not exist"},
		"ignores-errors": {change: func(p *policy, _ *binding) { p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore) }, want: "failurePolicy is not Fail"},
		"only-annotates": {
			change: func(p *policy, _ *binding) {
				p.Spec.Validations = nil
				p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'a'"}}
			},
			want: "validates nothing",
		},
		"only-warns": {change: func(_ *policy, b *binding) {
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{"Warn"}
		}, want: "lack Deny"},
		"binds-another": {change: func(_ *policy, b *binding) { b.Spec.PolicyName = "as-installed" }, want: "binds another policy"},
		"is-narrowed": {change: func(_ *policy, b *binding) {
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{}}
		}, want: "has matchResources"},
		"may-not-be-read": {change: func(*policy, *binding) {}, reader: "nobody", want: "ValidatingAdmissionPolicy may-not-be-read is unknown: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := newAdmissionPolicy(name)
			test.change(p, b)
			for _, object := range []client.Object{p, b} {
				if object.GetName() != "" {
					mustCreate(t, object)
				}
			}
			reader := client.Reader(cluster)
			if test.reader != "" {
				reader = newClientOf(t, "system:serviceaccount:default:"+test.reader)
			}
			problem, err := kube.NewAdmissionPolicies(reader, []string{name}, "nothing happens").Problem(t.Context())
			if err != nil || (problem == "") != (test.want == "") || !strings.Contains(problem, test.want) {
				t.Errorf("problem %q, %v; want %q", problem, err, test.want)
			}
		})
	}
}

// Not parallel: sessions of other tests would wait.
func TestSessionsWaitWhileAnAdmissionPolicyThatProtectsUsersIsMissing(t *testing.T) {
	_, binding := newAdmissionPolicy(sessionPolicy)
	running := createSession(t)
	running.waitForPod()
	mustDelete(t, binding.DeepCopy())
	t.Cleanup(func() { // also after a failure
		require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(context.Background(), binding.DeepCopy())))
	})
	ns := newNamespace(t, nil)
	var waiting *sessionTest
	// The operator remembers for some seconds that the policy was enforced, and starts some more sessions.
	for i := 0; waiting == nil; i++ {
		s := createSessionIn(t, ns, fmt.Sprint("session-", i))
		poll.Until(t, "the session to start or to wait", func() bool {
			session := s.getSession()
			blocked := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionBlocked)
			if blocked != nil && blocked.Reason == v1alpha1.ReasonUnprotected {
				waiting = s
			}
			return waiting != nil || session.Status.Attempt.JobName != ""
		})
	}
	poll.Until(t, "the SessionRunner to say why sessions do not start", func() bool {
		var runner v1alpha1.SessionRunner
		mustGet(t, client.ObjectKey{Namespace: ns, Name: "default"}, &runner)
		ready := meta.FindStatusCondition(runner.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonUnprotected &&
			strings.Contains(ready.Message, sessionPolicy+" does not exist")
	})
	if s := running.getSession(); s.Status.Attempt.JobName == "" {
		t.Errorf("the session that ran was stopped: %+v", s.Status)
	}
	require.NoError(t, cluster.Create(t.Context(), binding.DeepCopy()))
	waiting.waitForPod()
}
