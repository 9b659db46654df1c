package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// unschedulableClass is a RuntimeClass that no node supports, so that no simulated node runs the Pod
// and the test sets its status.
const unschedulableClass = "test-unschedulable"

// sessionTest checks one AgenticSession.
type sessionTest struct {
	t   *testing.T
	key client.ObjectKey
}

// createSession creates a session and its SessionRunner in a namespace that enforces the Pod
// Security Standard restricted.
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

// newUnschedulableRunner returns a SessionRunner whose Pods no simulated node runs.
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
	s.t.Helper()
	object := &v1alpha1.AgenticSession{}
	mustGet(s.t, s.key, object)
	return object
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
		if err := cluster.List(s.t.Context(), &pods, client.InNamespace(s.key.Namespace), selector); err != nil || len(pods.Items) == 0 {
			return false
		}
		found = &pods.Items[0]
		return true
	})
	return found
}

// startRunner and exitRunner set the status of the Pod as a kubelet does.
func (s *sessionTest) startRunner() {
	s.t.Helper()
	s.updatePodStatus(s.waitForPod(), func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: v1alpha1.RunnerContainer, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
}

func (s *sessionTest) exitRunner(code int32, message string) {
	s.t.Helper()
	s.updatePodStatus(s.waitForPod(), func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: metav1.Now(), FinishedAt: metav1.Now()},
		}}}
	})
}

func (s *sessionTest) updatePodStatus(pod *corev1.Pod, change func(pod *corev1.Pod)) {
	s.t.Helper()
	poll.Until(s.t, "the Pod's status to be written", func() bool {
		mustGet(s.t, client.ObjectKeyFromObject(pod), pod)
		change(pod)
		return cluster.Status().Update(s.t.Context(), pod) == nil
	})
}

// The API server accepts all examples except refused.yaml.
func TestAgenticSessionExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, file := range examples(t, "agenticsession/*.yaml", "agents/*/agent.yaml") {
		t.Run(strings.TrimPrefix(file, repositoryRoot), func(t *testing.T) {
			ns := namespace(t)
			strict := strictClient(t, &warningList{})
			for _, object := range readManifests(t, file) {
				object.SetNamespace(ns)
				err := strict.Create(t.Context(), object)
				if refused := filepath.Base(file) == "refused.yaml"; (err != nil) != refused {
					t.Errorf("%s: %v", object.GetName(), err)
				}
			}
			wantAccepted(t, ns)
		})
	}
}

func wantAccepted(t *testing.T, ns string) {
	t.Helper()
	poll.Until(t, "its sessions to be accepted", func() bool {
		var list v1alpha1.AgenticSessionList
		require.NoError(t, cluster.List(context.Background(), &list, client.InNamespace(ns)))
		for i := range list.Items {
			if !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionSpecAccepted) {
				raw, _ := json.Marshal(list.Items[i].Status.Conditions)
				t.Logf("%s: %s", list.Items[i].Name, raw)
				return false
			}
		}
		return true
	})
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
			if creating := s.waitForPhase(v1alpha1.SessionCreating); creating.Status.Attempt.InputsRef.Name == secret.Name {
				t.Fatal("the inputs have not changed")
			}
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
