package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// unschedulableClass is a RuntimeClass that no node supports, so that no simulated node runs the Pod and the test sets its status.
const unschedulableClass = "test-unschedulable"

type sessionTest struct {
	t   *testing.T
	key client.ObjectKey
}

// createSession creates a session and its SessionRunner in a namespace that enforces the Pod Security Standard restricted.
func createSession(t *testing.T, change ...func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner)) *sessionTest {
	t.Helper()
	return createSessionIn(t, newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}), "fix", change...)
}

func createSessionIn(t *testing.T, ns, name string, change ...func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner)) *sessionTest {
	t.Helper()
	r := newUnschedulableRunner(t, ns)
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	s.Spec.Prompt = "do it"
	for _, c := range change {
		c(s, r)
	}
	createIfMissing(t, r)
	mustCreate(t, s)
	return &sessionTest{t, client.ObjectKeyFromObject(s)}
}

func newUnschedulableRunner(t *testing.T, ns string) *v1alpha1.SessionRunner {
	t.Helper()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: unschedulableClass}, Handler: "runc"}
	class.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"test.yardmaster.dev/no-such-node": "true"}}
	createIfMissing(t, class)
	r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	r.Spec.Image, testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsUser, testbuilder.RunnerPod(&r.Spec).RuntimeClassName = "runner:1", new(int64(65532)), new(unschedulableClass)
	return r
}

func createIfMissing(t *testing.T, object client.Object) {
	t.Helper()
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), object)))
}

func (s *sessionTest) getSession() *v1alpha1.AgenticSession {
	return mustGet(s.t, s.key, &v1alpha1.AgenticSession{})
}

func (s *sessionTest) waitForPhase(phase v1alpha1.SessionPhase) *v1alpha1.AgenticSession {
	s.t.Helper()
	poll.Until(s.t, "phase "+string(phase), func() bool { return s.getSession().Status.Phase == phase })
	return s.getSession()
}

func (s *sessionTest) patchSpec(spec string) {
	s.t.Helper()
	mustPatch(s.t, s.getSession(), client.RawPatch(mergePatch, []byte(`{"spec":`+spec+`}`)))
}

func (s *sessionTest) listJobs() []batchv1.Job {
	s.t.Helper()
	var jobs batchv1.JobList
	ofSession := client.MatchingLabels{agenticsession.LabelSession: s.key.Name}
	require.NoError(s.t, cluster.List(s.t.Context(), &jobs, client.InNamespace(s.key.Namespace), ofSession))
	return jobs.Items
}

// waitForPod waits for the Pod of the open attempt's Job.
func (s *sessionTest) waitForPod() *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	poll.Until(s.t, "a Pod", func() bool {
		var pods corev1.PodList
		selector := client.MatchingLabels{batchv1.JobNameLabel: s.getSession().Status.Attempt.JobName}
		require.NoError(s.t, cluster.List(s.t.Context(), &pods, client.InNamespace(s.key.Namespace), selector))
		if len(pods.Items) > 0 {
			found = &pods.Items[0]
		}
		return found != nil
	})
	return found
}

func (s *sessionTest) exitRunner(code int32, message string) {
	s.t.Helper()
	s.updatePodStatus(func(pod *corev1.Pod) { endContainers(pod, code, message) })
}

func (s *sessionTest) updatePodStatus(change func(pod *corev1.Pod)) {
	s.t.Helper()
	pod := s.waitForPod()
	poll.Until(s.t, "the Pod's status to be written", func() bool {
		mustGet(s.t, client.ObjectKeyFromObject(pod), pod)
		change(pod)
		return cluster.Status().Update(s.t.Context(), pod) == nil
	})
}

// The API server accepts all examples except refused.yaml, with strict field validation.
func TestExamplesOfQueuesPoolsAndSessionsAreAccepted(t *testing.T) {
	t.Parallel()
	files := examples(t, "queue/*.yaml", "workerpool/*.yaml", "orders/*.yaml", "thumbnails/*.yaml", "agenticsession/*.yaml", "agents/*/agent.yaml")
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, repositoryRoot), func(t *testing.T) {
			ns, strict := namespace(t), strictClient(t, &warningList{})
			for _, object := range readManifests(t, file) {
				object.SetNamespace(ns)
				err := strict.Create(t.Context(), object)
				require.True(t, (err != nil) == (filepath.Base(file) == "refused.yaml"), "%s: %v", object.GetName(), err)
			}
			poll.Until(t, "its sessions to be accepted", func() bool {
				var list v1alpha1.AgenticSessionList
				require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(ns)))
				return !slices.ContainsFunc(list.Items, func(s v1alpha1.AgenticSession) bool {
					return !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionSpecAccepted)
				})
			})
		})
	}
}

// Anyone may delete the inputs of a stopped session and create a Secret with their name.
func TestOldInputsAreDeletedAndASecretOfAnotherOwnerIsKept(t *testing.T) {
	t.Parallel()
	for title, isReplaced := range map[string]bool{"the session's inputs": false, "a Secret of another owner": true} {
		t.Run(title, func(t *testing.T) {
			s := createSession(t)
			s.waitForPod()
			s.patchSpec(`{"suspend": true}`)
			stopped := s.waitForPhase(v1alpha1.SessionStopped)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: stopped.Status.Attempts[0].InputsRef.Name}}
			if isReplaced {
				mustDelete(t, secret.DeepCopy())
				mustCreate(t, secret)
			}
			s.patchSpec(`{"suspend": false, "displayName": "another name"}`)
			// The operator records the Job after it has deleted the old inputs.
			creating := s.waitForPhase(v1alpha1.SessionCreating)
			require.True(t, creating.Status.Attempt.InputsRef.Name != secret.Name, "the inputs have not changed")
			err := cluster.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
			require.True(t, (!isReplaced || err == nil) && (isReplaced || apierrors.IsNotFound(err)), "reading the Secret: %v", err)
		})
	}
}

// The order is decided in internal/kinds/agenticsession. Here the end and the deletion of a session, and another limit, start the next.
func TestExcessSessionsWaitInOrder(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	var sessions []*sessionTest
	for i := range 4 {
		sessions = append(sessions, createSessionIn(t, ns, fmt.Sprint("s", i), func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
			r.Spec.Limits.MaxSessions = new(int32(1))
		}))
	}
	// wantOnlyFirst waits until the first sessions have started, and the next is queued.
	wantOnlyFirst := func(started int) {
		t.Helper()
		for _, s := range sessions[:started] {
			poll.Until(t, s.key.Name+" to start", func() bool { return len(s.listJobs()) > 0 })
		}
		poll.Until(t, "the next session to be queued", func() bool {
			ready := meta.FindStatusCondition(sessions[started].getSession().Status.Conditions, v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonQueued
		})
		for _, s := range sessions[started:] {
			require.Equal(t, 0, len(s.listJobs()))
		}
	}
	wantOnlyFirst(1)
	sessions[0].exitRunner(0, "")
	wantOnlyFirst(2)
	mustDelete(t, sessions[1].getSession())
	sessions = append(sessions[:1], sessions[2:]...)
	wantOnlyFirst(2)
	sessions[1].patchRunner(`{"limits":{"maxSessions":null}}`)
	sessions[2].waitForPod()
}

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
	return errors.Join(client.IgnoreAlreadyExists(cluster.Create(ctx, policy)), client.IgnoreAlreadyExists(cluster.Create(ctx, binding)))
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
			require.True(t, err == nil && (problem == "") == (test.want == "") && strings.Contains(problem, test.want),
				"problem %q, %v; want %q", problem, err, test.want)
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
	s := running.getSession()
	require.True(t, s.Status.Attempt.JobName != "", "the session that ran was stopped: %+v", s.Status)
	require.NoError(t, cluster.Create(t.Context(), binding.DeepCopy()))
	waiting.waitForPod()
}

// somebodyElse is a field manager other than the operator's.
const somebodyElse = client.FieldOwner("somebody-else")

func (s *sessionTest) networkPolicy(name string) *networkingv1.NetworkPolicy {
	return mustGet(s.t, client.ObjectKey{Namespace: s.key.Namespace, Name: name}, &networkingv1.NetworkPolicy{})
}

func TestObjectsOfARunningSessionAreRestored(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		s.Spec.Interactive, r.Spec.ActivityLease = true, true
	})
	s.updatePodStatus(func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: v1alpha1.RunnerContainer, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
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

// A Schedule deletes the run that it replaces like this, and waits until it is gone.
func TestASessionThatIsDeletedInTheForegroundRemainsUntilItsPodIsGone(t *testing.T) {
	t.Parallel()
	s := createSession(t)
	pod := s.waitForPod()
	mustPatch(t, pod, client.RawPatch(mergePatch, []byte(`{"metadata": {"finalizers": ["test.yardmaster.dev/slow"]}}`)))
	mustDelete(t, s.getSession(), client.PropagationPolicy(metav1.DeletePropagationForeground))
	poll.Until(t, "the Pod to be stopped", func() bool { return !mustGet(t, client.ObjectKeyFromObject(pod), pod).DeletionTimestamp.IsZero() })
	require.True(t, !s.getSession().DeletionTimestamp.IsZero(), "the session is not being deleted")
	mustPatch(t, pod, client.RawPatch(mergePatch, []byte(`{"metadata": {"finalizers": null}}`)))
	poll.Until(t, "the session to be gone", func() bool { return apierrors.IsNotFound(cluster.Get(t.Context(), s.key, &v1alpha1.AgenticSession{})) })
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
	other := o.newObject("networkpolicies.networking.k8s.io", o.watched, "other")
	require.True(t, cluster.Create(t.Context(), other, client.DryRunAll) == nil, "another user cannot create other NetworkPolicies")
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

// proxyObject reads an object of the proxy of the session's namespace into the given one; it returns false if it does not exist.
func (s *sessionTest) proxyObject(into client.Object) bool {
	s.t.Helper()
	err := cluster.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: workload.Name}, into)
	require.NoError(s.t, client.IgnoreNotFound(err))
	return err == nil
}

func (s *sessionTest) getRunner() *v1alpha1.SessionRunner {
	return mustGet(s.t, client.ObjectKey{Namespace: s.key.Namespace, Name: "default"}, &v1alpha1.SessionRunner{})
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

// clusterRolesOfUsers returns the rules of the ClusterRoles for users of sessions, Schedules and SequentialJobs, by their names.
func clusterRolesOfUsers(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, file := range []string{"session.yaml", "schedule.yaml", "sequentialjob.yaml"} {
		raw, err := os.ReadFile(filepath.Join(repositoryRoot, "config", "rbac", "users", file))
		require.NoError(t, err)
		for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
			role := &rbacv1.ClusterRole{}
			require.NoError(t, yaml.UnmarshalStrict(document, role))
			rules[role.Name] = role.Rules
		}
	}
	return rules
}

// clientWithRoles returns a client of a user that has the rules of these ClusterRoles, in one namespace.
func clientWithRoles(t *testing.T, ns, user string, names ...string) client.Client {
	t.Helper()
	all := clusterRolesOfUsers(t)
	for _, name := range names {
		require.True(t, all[name] != nil, "there is no ClusterRole %s", name)
		createIfMissing(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Rules: all[name]})
		mustCreate(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + user, Namespace: ns},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	c := impersonate(t, user, "system:authenticated")
	probe := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: ns}}
	probe.Spec.Prompt, probe.Spec.UserContext = "none", &v1alpha1.UserContext{UserID: user}
	// The API server learns of one Role after the other.
	isAllowed := func(verb string, rule *rbacv1.PolicyRule) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: ns, Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0],
		}}}
		return cluster.Create(t.Context(), review) == nil && review.Status.Allowed
	}
	poll.Until(t, user+" to have permissions", func() bool {
		for _, name := range names {
			for i := range all[name] {
				if rule := &all[name][i]; len(rule.ResourceNames) == 0 && slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !isAllowed(verb, rule) }) {
					return false
				}
			}
		}
		return c.List(t.Context(), &v1alpha1.AgenticSessionList{}, client.InNamespace(ns)) == nil &&
			c.Create(t.Context(), probe.DeepCopy(), client.DryRunAll) == nil
	})
	return c
}

// Neither the owner nor an administrator can change or remove the owner, with and without the webhooks.
func TestTheOwnerOfASessionNeverChanges(t *testing.T) {
	t.Parallel()
	ns, unchecked, number := namespace(t), namespaceWithoutWebhook(t), 0
	for title, row := range map[string]struct{ patch, want string }{
		"another owner":              {`[{"op": "replace", "path": "/spec/userContext/userID", "value": "bob"}]`, "userContext is immutable"},
		"no name":                    {`[{"op": "remove", "path": "/spec/userContext/userID"}]`, "userContext is immutable"},
		"an empty name":              {`[{"op": "replace", "path": "/spec/userContext/userID", "value": ""}]`, "userContext is immutable"},
		"an empty userContext":       {`[{"op": "replace", "path": "/spec/userContext", "value": {}}]`, "userContext is immutable"},
		"a removed userContext":      {`[{"op": "remove", "path": "/spec/userContext"}]`, ""},
		"a userContext that is null": {`[{"op": "replace", "path": "/spec/userContext", "value": null}]`, ""},
	} {
		number++
		t.Run(title, func(t *testing.T) {
			patch := client.RawPatch(types.JSONPatchType, []byte(row.patch))
			for _, user := range []string{"ann", "admin"} {
				name := fmt.Sprint(user, number)
				require.NoError(t, clientOf(t, "ann").Create(t.Context(), sessionWithSpec(ns, name, map[string]any{"prompt": "a"})))
				wantOwnerKept(t, ns, name, clientOf(t, user).Patch(t.Context(), sessionWithSpec(ns, name, nil), patch), row.want)
			}
			// Without the webhooks, nothing restores a removed owner, so removing it is refused.
			name := fmt.Sprint("fix", number)
			mustCreate(t, sessionWithSpec(unchecked, name, map[string]any{"prompt": "a", "userContext": map[string]any{"userID": "ann"}}))
			err := cluster.Patch(t.Context(), sessionWithSpec(unchecked, name, nil), patch)
			wantOwnerKept(t, unchecked, name, err, "userContext is immutable")
		})
	}
}

// wantOwnerKept checks that a change failed with this message, or succeeded without one, and that the session still belongs to ann.
func wantOwnerKept(t *testing.T, ns, name string, err error, message string) {
	t.Helper()
	if message == "" && err != nil || message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
		t.Errorf("error %v, want %q", err, message)
	}
	stored := mustGet(t, client.ObjectKey{Namespace: ns, Name: name}, &v1alpha1.AgenticSession{})
	require.True(t, stored.Spec.UserContext != nil && stored.Spec.UserContext.UserID == "ann", "the owner is %+v", stored.Spec.UserContext)
}

func TestOnlyAnAdministratorChangesTheSessionOfAnotherUser(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	waitForAdmissionPolicies(t)
	ann := clientWithRoles(t, ns, "ann", "yardmaster-session-view", "yardmaster-session-edit")
	bob := clientWithRoles(t, ns, "bob", "yardmaster-session-view", "yardmaster-session-edit")
	admin := clientWithRoles(t, ns, "admin", "yardmaster-session-view", "yardmaster-session-edit", "yardmaster-session-admin")
	require.NoError(t, ann.Create(t.Context(), sessionWithSpec(ns, "fix", map[string]any{"prompt": "a"})))
	stop := func(c client.Client, suspend string) error {
		patch := client.RawPatch(mergePatch, []byte(`{"spec": {"suspend": `+suspend+`}}`))
		return c.Patch(t.Context(), sessionWithSpec(ns, "fix", nil), patch)
	}
	if err := stop(bob, "true"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), belongsToAnn) || !strings.Contains(err.Error(), "verb administer") {
		t.Errorf("another user: %v", err)
	}
	for user, c := range map[string]client.Client{"the owner": ann, "an administrator": admin} {
		for _, mode := range []string{"true", "false"} {
			wantAllowed(t, user+", "+mode, stop(c, mode))
		}
	}
	labels := client.RawPatch(mergePatch, []byte(`{"metadata": {"labels": {"team": "a"}, "annotations": {"a": "b"}, "finalizers": ["a.example/b"]}}`))
	wantAllowed(t, "metadata", bob.Patch(t.Context(), sessionWithSpec(ns, "fix", nil), labels))
	wantAllowed(t, "finalizers", bob.Patch(t.Context(), sessionWithSpec(ns, "fix", nil), client.RawPatch(mergePatch, []byte(`{"metadata": {"finalizers": null}}`))))
}

// The webhooks record the author of a session. Without them, in an emergency, nobody can create a session, or a Schedule of
// sessions, in the name of somebody else.
func TestWithoutTheWebhooksASessionIsOfItsAuthor(t *testing.T) {
	t.Parallel()
	waitForAdmissionPolicies(t)
	ns := namespaceWithoutWebhook(t)
	roles := []string{"yardmaster-session-view", "yardmaster-session-edit", "yardmaster-schedule-view", "yardmaster-schedule-edit"}
	users := map[string]client.Client{
		"ann":   clientWithRoles(t, ns, "ann", roles...),
		"admin": clientWithRoles(t, ns, "admin", append(roles, "yardmaster-session-admin")...),
	}
	newSchedule := func(name string, spec map[string]any) *unstructured.Unstructured {
		s := sessionWithSpec(ns, name, map[string]any{"schedule": "0 0 1 1 *", "agenticSession": map[string]any{"spec": spec}})
		s.SetKind("Schedule")
		return s
	}
	for title, row := range map[string]struct {
		user, context string
		want          string
	}{
		"the name of the author":                 {"ann", `{userID: ann}`, ""},
		"the name of somebody else":              {"ann", `{userID: bob}`, "userContext.userID must be ann"},
		"a name that begins with the author's":   {"ann", `{userID: ann2}`, "userContext.userID must be ann"},
		"no name":                                {"ann", `{}`, "userContext.userID must be ann"},
		"no user":                                {"ann", "null", "userContext.userID must be ann"},
		"the name of somebody else, by an admin": {"admin", `{userID: bob}`, ""},
	} {
		t.Run(title, func(t *testing.T) {
			var context any
			require.NoError(t, yaml.Unmarshal([]byte(row.context), &context))
			spec := map[string]any{"prompt": "a", "userContext": context}
			for kind, object := range map[string]*unstructured.Unstructured{"AgenticSession": sessionWithSpec(ns, "new", spec), "Schedule": newSchedule("new", spec)} {
				err := users[row.user].Create(t.Context(), object, client.DryRunAll)
				if refused := row.want != ""; apierrors.IsForbidden(err) != refused || refused && !strings.Contains(err.Error(), row.want) || !refused && err != nil {
					t.Errorf("%s: %v, want %q", kind, err, row.want)
				}
			}
		})
	}
	anns := newSchedule("anns", map[string]any{"prompt": "a", "userContext": map[string]any{"userID": "ann"}})
	require.NoError(t, users["ann"].Create(t.Context(), anns))
	bob := clientWithRoles(t, ns, "bob", roles...)
	for patch, want := range map[string]string{
		`{"spec": {"suspend": true}}`:                                                               "",
		`{"spec": {"agenticSession": {"spec": {"prompt": "b"}}}}`:                                   "userContext.userID must be bob",
		`{"spec": {"agenticSession": {"spec": {"prompt": "b", "userContext": {"userID": "bob"}}}}}`: "",
	} {
		err := bob.Patch(t.Context(), anns.DeepCopy(), client.RawPatch(mergePatch, []byte(patch)), client.DryRunAll)
		if refused := want != ""; apierrors.IsForbidden(err) != refused || refused && !strings.Contains(err.Error(), want) || !refused && err != nil {
			t.Errorf("%s: %v, want %q", patch, err, want)
		}
	}
}

// isolationTest is a namespace in which ann works with sessions, and bob attacks them. Both can only view and edit sessions.
type isolationTest struct {
	*testing.T
	ns     string
	bob    client.Client
	inputs string   // the Secret with the inputs of ann's session
	uids   []string // of ann's sessions
}

// Objects of ann.
const (
	annsSession = "anns"
	// annsOldSession is a session that bob deletes.
	annsOldSession = "anns-old"
	annsSecret     = "anns-token"
	annsAccount    = "anns-account-token"
	sharedSecret   = "shared" // a Secret that the SessionRunner allows
)

func newIsolationTest(t *testing.T) *isolationTest {
	waitForAdmissionPolicies(t)
	i := &isolationTest{T: t, ns: newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})}
	for _, name := range []string{annsSecret, sharedSecret} {
		mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: i.ns}, StringData: map[string]string{"token": "a", "other": "b"}})
	}
	mustCreate(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "anns", Namespace: i.ns}})
	mustCreate(t, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
		Name: annsAccount, Namespace: i.ns, Annotations: map[string]string{corev1.ServiceAccountNameKey: "anns"},
	}})
	ann := clientWithRoles(t, i.ns, "ann", "yardmaster-session-view", "yardmaster-session-edit")
	i.bob = clientWithRoles(t, i.ns, "bob", "yardmaster-session-view", "yardmaster-session-edit")
	runner := newUnschedulableRunner(t, i.ns)
	runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(sharedSecret, "token", "D_PRELOAD", "GENTIC_RUN"), testbuilder.Source("files")}
	runner.Spec.Allowed.ConfigMaps = []v1alpha1.SessionSource{testbuilder.Source("settings", "PATH")}
	mustCreate(t, runner)
	for _, name := range []string{annsOldSession, annsSession} {
		if err := ann.Create(t.Context(), sessionWithSpec(i.ns, name, map[string]any{
			"prompt": "a", "workspace": map[string]any{"retention": "Retain"}, "environmentVariables": map[string]any{"A": "b"},
		})); err != nil {
			t.Fatal(err)
		}
		s := &sessionTest{t, client.ObjectKey{Namespace: i.ns, Name: name}}
		s.exitRunner(0, `{"sdkSessionId": "anns-conversation"}`)
		completed := s.waitForPhase(v1alpha1.SessionCompleted)
		i.inputs, i.uids = completed.Status.Attempts[0].InputsRef.Name, append(i.uids, string(completed.UID))
	}
	return i
}

func (i *isolationTest) patch(spec string) error {
	return i.bob.Patch(i.Context(), sessionWithSpec(i.ns, annsSession, nil), client.RawPatch(mergePatch, []byte(`{"spec": `+spec+`}`)))
}

func (i *isolationTest) create(name, spec string) error {
	var fields map[string]any
	require.NoError(i, yaml.Unmarshal([]byte(spec), &fields))
	return i.bob.Create(i.Context(), sessionWithSpec(i.ns, name, fields))
}

// An attack is either refused by the API server, or creates a session that the operator refuses, with this
// text in the error or in the condition SpecAccepted or Blocked.
type attack struct {
	run  func(i *isolationTest, name string) error
	want string
}

func change(spec string) func(*isolationTest, string) error {
	return func(i *isolationTest, _ string) error { return i.patch(spec) }
}

func newSession(spec string) func(*isolationTest, string) error {
	return func(i *isolationTest, name string) error { return i.create(name, spec) }
}

const (
	belongsToAnn     = `the session belongs to user ann, so only this user`
	ownedByOtherUser = "AgenticSession anns of continueFrom belongs to another user"
)

var attacksOnSessions = map[string]attack{
	"rerun her session":                          {change(`{"rerun": {"id": "2"}}`), belongsToAnn},
	"stop her session":                           {change(`{"suspend": true}`), belongsToAnn},
	"add a Secret to her session":                {change(`{"secretMounts": [{"name": "shared"}]}`), belongsToAnn},
	"add variables of a Secret":                  {change(`{"envFrom": [{"secretRef": {"name": "shared"}}]}`), belongsToAnn},
	"add a variable to her session":              {change(`{"environmentVariables": {"A": "evil"}}`), belongsToAnn},
	"add a tool server to her session":           {change(`{"agent": {"mcpServers": {"custom": {"a": {"url": "https://evil.example"}}}}}`), belongsToAnn},
	"replace the instructions of the agent":      {change(`{"agent": {"workflow": {"url": "https://evil.example/a"}}}`), belongsToAnn},
	"add a repository to her session":            {change(`{"repos": [{"url": "https://evil.example/a"}]}`), belongsToAnn},
	"run another SessionRunner in her workspace": {change(`{"runner": "other", "rerun": {"id": "2"}}`), belongsToAnn},
	"delete her session after a time":            {change(`{"ttlSecondsAfterFinished": 0}`), belongsToAnn},
	"take over her session":                      {change(`{"userContext": {"userID": "bob"}}`), "userContext is immutable"},
	"remove her name and rerun":                  {change(`{"userContext": null, "rerun": {"id": "2"}}`), belongsToAnn},
	"apply a manifest of her session by force": {func(i *isolationTest, _ string) error {
		manifest := sessionWithSpec(i.ns, annsSession, map[string]any{"prompt": "a", "rerun": map[string]any{"id": "2"}})
		return i.bob.Apply(i.Context(), client.ApplyConfigurationFromUnstructured(manifest), client.FieldOwner("bob"), client.ForceOwnership)
	}, belongsToAnn},
	"replace her session": {func(i *isolationTest, _ string) error {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
		require.NoError(i, i.bob.Get(i.Context(), client.ObjectKey{Namespace: i.ns, Name: annsSession}, stored))
		stored.Object["spec"] = map[string]any{"prompt": "a", "rerun": map[string]any{"id": "2"}, "workspace": map[string]any{"retention": "Retain"}}
		return i.bob.Update(i.Context(), stored)
	}, belongsToAnn},
	"write the status of her session": {func(i *isolationTest, _ string) error {
		return i.bob.Status().Patch(i.Context(), sessionWithSpec(i.ns, annsSession, nil), client.RawPatch(mergePatch, []byte(`{"status": {"phase": "Pending"}}`)))
	}, "forbidden"},
	"continue her session":             {newSession(`{prompt: a, continueFrom: {name: anns}}`), ownedByOtherUser},
	"continue her session in her name": {newSession(`{prompt: a, continueFrom: {name: anns}, userContext: {userID: ann}}`), ownedByOtherUser},
	"read the inputs of her session":   {newSessionWithInputs(`{prompt: a, secretMounts: [{name: %s}]}`), "the inputs Secret of a session is only for its runner"},
	"read her inputs as variables":     {newSessionWithInputs(`{prompt: a, envFrom: [{secretRef: {name: %s}}]}`), "the inputs Secret of a session is only for its runner"},
	"continue a session with the name of her deleted one": {func(i *isolationTest, name string) error {
		again := &sessionTest{i.T, client.ObjectKey{Namespace: i.ns, Name: annsOldSession}}
		require.NoError(i, i.bob.Delete(i.Context(), again.getSession()))
		require.NoError(i, i.create(annsOldSession, `{prompt: a, workspace: {}, limits: {startupTimeout: 1s}}`))
		again.waitForPhase(v1alpha1.SessionFailed) // NameTaken
		return i.create(name, `{prompt: a, continueFrom: {name: `+annsOldSession+`}}`)
	}, "PersistentVolumeClaim anns-old-workspace does not belong to the continued session"},
	"continue a session that was refused her workspace": {func(i *isolationTest, name string) error {
		require.NoError(i, i.create("refused", `{prompt: a, continueFrom: {name: anns}, limits: {startupTimeout: 1s}}`))
		(&sessionTest{i.T, client.ObjectKey{Namespace: i.ns, Name: "refused"}}).waitForPhase(v1alpha1.SessionFailed)
		return i.create(name, `{prompt: a, continueFrom: {name: refused}}`)
	}, "AgenticSession refused of continueFrom has no persistent workspace"},
	"continue her session later": {func(i *isolationTest, _ string) error {
		require.NoError(i, i.create("later", `{prompt: a}`))
		patch := client.RawPatch(mergePatch, []byte(`{"spec": {"continueFrom": {"name": "anns"}}}`))
		return i.bob.Patch(i.Context(), sessionWithSpec(i.ns, "later", nil), patch)
	}, "continueFrom is immutable"},
	"set the status of a new session": {func(i *isolationTest, name string) error {
		claims := sessionWithSpec(i.ns, name, map[string]any{"prompt": "a", "continueFrom": map[string]any{"name": annsSession}})
		claims.Object["status"] = map[string]any{"observedGeneration": int64(1), "workspace": map[string]any{"claimRef": map[string]any{"name": annsSession + "-workspace"}}}
		return i.bob.Create(i.Context(), claims)
	}, ownedByOtherUser},
	"create a SessionRunner": {func(i *isolationTest, _ string) error {
		runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "bobs", Namespace: i.ns}}
		runner.Spec.Image = "evil:1"
		return i.bob.Create(i.Context(), runner)
	}, "forbidden"},
	"read her Secret": {func(i *isolationTest, _ string) error {
		return i.bob.Get(i.Context(), client.ObjectKey{Namespace: i.ns, Name: annsSecret}, &corev1.Secret{})
	}, "forbidden"},
}

var attacksOnSecrets = map[string]attack{
	"mount her Secret":                           {newSession(`{prompt: a, secretMounts: [{name: anns-token}]}`), "does not allow Secret anns-token"},
	"mount her Secret if it exists":              {newSession(`{prompt: a, secretMounts: [{name: anns-token, optional: true}]}`), "does not allow Secret anns-token"},
	"use her Secret as variables":                {newSession(`{prompt: a, envFrom: [{secretRef: {name: anns-token}}]}`), "does not allow Secret anns-token"},
	"mount the token of a ServiceAccount":        {newSession(`{prompt: a, secretMounts: [{name: anns-account-token}]}`), "does not allow Secret anns-account-token"},
	"use the token of a ServiceAccount":          {newSession(`{prompt: a, envFrom: [{secretRef: {name: anns-account-token}}]}`), "does not allow Secret anns-account-token"},
	"use a Secret that is allowed only as files": {newSession(`{prompt: a, envFrom: [{secretRef: {name: files}}]}`), "lists no keys of Secret files"},
	"use a ConfigMap that is not allowed":        {newSession(`{prompt: a, envFrom: [{configMapRef: {name: kube-root-ca.crt}}]}`), "does not allow ConfigMap kube-root-ca.crt"},
	"set LD_PRELOAD with a prefix":               {newSession(`{prompt: a, envFrom: [{prefix: L, secretRef: {name: shared}}]}`), "sets the variable LD_PRELOAD, which is reserved"},
	"set a variable of the operator":             {newSession(`{prompt: a, envFrom: [{prefix: A, secretRef: {name: shared}}]}`), "sets the variable AGENTIC_RUN, which is reserved"},
	"set a reserved prefix":                      {newSession(`{prompt: a, envFrom: [{prefix: KUBERNETES_, secretRef: {name: shared}}]}`), "the prefix is reserved"},
	"set PATH with a ConfigMap":                  {newSession(`{prompt: a, envFrom: [{configMapRef: {name: settings}}]}`), "sets the variable PATH, which is reserved"},
}

func newSessionWithInputs(format string) func(*isolationTest, string) error {
	return func(i *isolationTest, name string) error { return i.create(name, fmt.Sprintf(format, i.inputs)) }
}

// Bob tries to reach the Secrets, the workspace and the session of ann. Each attempt is refused, and no Pod
// of bob's sessions contains anything of ann's.
func TestAUserCannotReachWhatBelongsToAnotherUser(t *testing.T) {
	t.Parallel()
	i := newIsolationTest(t)
	before := (&sessionTest{t, client.ObjectKey{Namespace: i.ns, Name: annsSession}}).getSession()
	number := 0
	attacks := maps.Clone(attacksOnSessions)
	maps.Copy(attacks, attacksOnSecrets)
	for title, row := range attacks {
		number++
		name := fmt.Sprintf("bobs-%d", number)
		t.Run(title, func(t *testing.T) {
			sub := *i
			sub.T = t
			sub.wantRefused(name, row)
		})
	}
	after := (&sessionTest{t, client.ObjectKey{Namespace: i.ns, Name: annsSession}}).getSession()
	require.True(t, after.Generation == before.Generation && after.Status.Run == 1,
		"the session changed: generation %d, run %d", after.Generation, after.Status.Run)
	i.wantNoPodWithObjectsOfAnn()
}

func (i *isolationTest) wantRefused(name string, row attack) {
	if err := row.run(i, name); err != nil {
		require.True(i, strings.Contains(err.Error(), row.want), "error %v, want %q", err, row.want)
		return
	}
	s := &sessionTest{i.T, client.ObjectKey{Namespace: i.ns, Name: name}}
	found := ""
	poll.Until(i.T, "the session to be refused with: "+row.want, func() bool {
		found = ""
		for _, c := range s.getSession().Status.Conditions {
			if c.Type == v1alpha1.ConditionSpecAccepted && c.Status != metav1.ConditionTrue || c.Type == v1alpha1.ConditionBlocked && c.Status == metav1.ConditionTrue {
				found += c.Message
			}
		}
		return strings.Contains(found, row.want)
	})
	require.Equal(i, 0, len(s.listJobs()))
}

// wantNoPodWithObjectsOfAnn checks the templates of all Jobs but those of ann's sessions.
func (i *isolationTest) wantNoPodWithObjectsOfAnn() {
	var jobs batchv1.JobList
	require.NoError(i, cluster.List(context.Background(), &jobs, client.InNamespace(i.ns)))
	for _, job := range jobs.Items {
		if slices.Contains(i.uids, job.Labels[agenticsession.LabelSessionUID]) {
			continue
		}
		raw, err := job.Spec.Template.Marshal()
		require.NoError(i, err)
		for _, name := range []string{annsSession + "-workspace", annsOldSession + "-workspace", annsSecret, annsAccount, i.inputs} {
			require.True(i, !bytes.Contains(raw, []byte(name)), "the Pod of Job %s contains %s", job.Name, name)
		}
	}
}

// creatorRow is a write by ann, and what is recorded. Both the webhook and the MutatingAdmissionPolicy behave like this.
type creatorRow struct {
	before map[string]any // stored first, by bob; nil if ann creates the session
	// spec is what ann writes.
	spec      map[string]any
	want      *v1alpha1.UserContext
	wantError bool // true if the API server rejects the request
}

func creatorRows() map[string]creatorRow {
	ann, bob := &v1alpha1.UserContext{UserID: "ann"}, &v1alpha1.UserContext{UserID: "bob"}
	spec := func(userContext any) map[string]any {
		return map[string]any{"prompt": "do it", "userContext": userContext}
	}
	plain := map[string]any{"prompt": "do it"}
	claim := map[string]any{"userID": "root"}
	return map[string]creatorRow{
		"a new session without a user":                    {spec: plain, want: ann},
		"a new session that claims another user":          {spec: spec(claim), want: ann},
		"a new session with another field of a user":      {spec: spec(map[string]any{"userID": "root", "displayName": "Ann"}), want: ann},
		"a new session with a number as the user's name":  {spec: spec(map[string]any{"userID": int64(1)}), want: ann},
		"a new session with a user of a wrong type":       {spec: spec("root"), want: ann},
		"a new session with a list of users":              {spec: spec([]any{"root"}), want: ann},
		"a new session without a spec":                    {spec: nil, wantError: true},
		"an update by another user keeps the creator":     {before: plain, spec: map[string]any{"prompt": "do it", "suspend": true}, want: bob},
		"an update cannot claim another user":             {before: plain, spec: spec(claim), wantError: true},
		"an update with the stored user":                  {before: plain, spec: spec(map[string]any{"userID": "bob"}), want: bob},
		"an update with a user that is null":              {before: plain, spec: spec(nil), want: bob},
		"a new session with a user that is null":          {spec: spec(nil), want: ann},
		"a new session with an empty user":                {spec: spec(map[string]any{}), want: ann},
		"a new session with a field that differs in case": {spec: map[string]any{"prompt": "do it", "UserContext": claim}, want: ann},
	}
}

func TestWebhookRecordsTheCreatorOfASession(t *testing.T) {
	t.Parallel()
	testCreators(t, namespace(t))
}

func TestAdmissionPolicyRecordsTheCreatorOfASession(t *testing.T) {
	const policyLabel = "test.yardmaster.dev/admission-policy"
	installAdmissionPolicy(t, policyLabel)
	ns := newNamespace(t, map[string]string{testenv.WebhookLabel: "off", policyLabel: "on"})
	poll.Until(t, "the policy to be effective", func() bool {
		s := sessionWithSpec(ns, "effective", map[string]any{"prompt": "do it"})
		if err := cluster.Create(t.Context(), s, client.DryRunAll); err != nil { // for a while, policies do not know a new kind
			t.Log(err)
			return false
		}
		_, found, _ := unstructured.NestedMap(s.Object, "spec", "userContext")
		return found
	})
	testCreators(t, ns)
}

func testCreators(t *testing.T, ns string) {
	number := 0
	for title, row := range creatorRows() {
		number++
		name := fmt.Sprintf("s%d", number)
		t.Run(title, func(t *testing.T) {
			if row.before != nil {
				require.NoError(t, clientOf(t, "bob").Create(t.Context(), sessionWithSpec(ns, name, row.before)))
			}
			err := writeSpec(t.Context(), clientOf(t, "ann"), ns, name, row)
			if row.wantError {
				require.True(t, err != nil, "the request was accepted")
				return
			}
			require.NoError(t, err)
			stored := mustGet(t, client.ObjectKey{Namespace: ns, Name: name}, &v1alpha1.AgenticSession{})
			require.Equal(t, row.want, stored.Spec.UserContext)
		})
	}
}

func writeSpec(ctx context.Context, c client.Client, ns, name string, row creatorRow) error {
	if row.before == nil {
		return c.Create(ctx, sessionWithSpec(ns, name, row.spec))
	}
	raw, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": row.spec}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, sessionWithSpec(ns, name, nil), client.RawPatch(types.JSONPatchType, raw))
}

func sessionWithSpec(ns, name string, spec map[string]any) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		s.Object["spec"] = spec
	}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
	s.SetNamespace(ns)
	s.SetName(name)
	return s
}

// clientOf returns a client that impersonates an administrator.
func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	return impersonate(t, user, "system:masters")
}

// installAdmissionPolicy installs the component admission-policy for the namespaces with this label. It skips the test where the API
// server does not have its kinds.
func installAdmissionPolicy(t *testing.T, label string) {
	t.Helper()
	if !hasMutatingAdmissionPolicies(t) {
		t.Skipf("Kubernetes %s has no MutatingAdmissionPolicy, only a webhook that does the same", serverVersion())
	}
	for _, object := range readManifests(t, filepath.Join(repositoryRoot, "config", "components", "admission-policy", "policy.yaml")) {
		if object.GetKind() == "MutatingAdmissionPolicy" {
			selected := map[string]any{"matchLabels": map[string]any{label: "on"}}
			require.NoError(t, unstructured.SetNestedMap(object.Object, selected, "spec", "matchConstraints", "namespaceSelector"))
		}
		mustCreate(t, object)
	}
}
