package integration

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
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
