//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The SessionRunners of the tests.
const (
	// echoRunner uses the reference runner, which calls no model.
	echoRunner = "echo"
	// interactiveRunner is echoRunner with an activity Lease and ingress from visitors.
	interactiveRunner = "interactive"
	// sidecarRunner is interactiveRunner with a sidecar.
	sidecarRunner = "sidecar"
	// shellRunner runs the prompt as a shell script.
	shellRunner = "shell"
	// tokenRunner is shellRunner with a token for another audience and a Secret.
	tokenRunner = "token"
	// rootRunner is shellRunner with an image that runs as root.
	rootRunner = "root"

	runnerImage = "example-runner:v1"
)

var shellCommand = []string{"sh", "-ec", `. "$AGENTIC_PROMPT_FILE"`}

// visitorLabels is the label of Pods that may connect to an interactive session.
var visitorLabels = map[string]string{"app": "visitor"}

func createRunners(t *testing.T, ns string) {
	t.Helper()
	setInteractive := func(spec *v1alpha1.SessionRunnerSpec) {
		spec.ActivityLease = true
		spec.Network.IngressFrom = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: visitorLabels}}}
	}
	for name, configure := range map[string]func(spec *v1alpha1.SessionRunnerSpec){
		echoRunner:        func(*v1alpha1.SessionRunnerSpec) {},
		interactiveRunner: setInteractive,
		sidecarRunner: func(spec *v1alpha1.SessionRunnerSpec) {
			setInteractive(spec)
			sidecar := testbuilder.SidecarWithWorkspace("sidecar", busyboxImage)
			sidecar.Command = []string{"sh", "-c", "trap 'exit 0' TERM; touch /workspace/sidecar-started; sleep 3600 & wait"}
			testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{sidecar}
		},
		shellRunner: func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Image, testbuilder.RunnerContainer(spec).Command = busyboxImage, shellCommand
		},
		tokenRunner: func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Image, testbuilder.RunnerContainer(spec).Command = busyboxImage, shellCommand
			spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("listed", "token")}
			testbuilder.MountVolume(spec, "tokens", "/var/run/secrets/tokens", testbuilder.Tokens(corev1.ServiceAccountTokenProjection{Audience: "cloud.example", Path: "cloud"}))
		},
		rootRunner: func(spec *v1alpha1.SessionRunnerSpec) {
			spec.Image, testbuilder.RunnerPod(spec).SecurityContext.RunAsUser = busyboxImage, nil
		},
	} {
		r := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
		r.Spec.Image, testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsUser = runnerImage, new(int64(65532))
		r.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("none"), testbuilder.Source("no-such", "token")}
		// Low requests, so that many Pods fit on the node.
		testbuilder.RunnerContainer(&r.Spec).Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
		}
		configure(&r.Spec)
		if err := cluster.Create(t.Context(), r); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
}

// apiServerEgress returns rules for the API server: for its Service, and for the endpoints.
func apiServerEgress(t *testing.T) []v1alpha1.SessionEgress {
	t.Helper()
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	var service corev1.Service
	require.NoError(t, cluster.Get(t.Context(), key, &service))
	var slice discoveryv1.EndpointSlice
	require.NoError(t, cluster.Get(t.Context(), key, &slice))
	egress := []v1alpha1.SessionEgress{{To: testbuilder.Block(service.Spec.ClusterIP + "/32"), Ports: testbuilder.Ports(service.Spec.Ports[0].Port)}}
	for _, endpoint := range slice.Endpoints {
		egress = append(egress, v1alpha1.SessionEgress{To: testbuilder.Block(endpoint.Addresses[0] + "/32"), Ports: testbuilder.Ports(*slice.Ports[0].Port)})
	}
	return egress
}

type sessionTest struct {
	t *testing.T
	s *v1alpha1.AgenticSession
}

func createSession(t *testing.T, runner, prompt string, change func(spec *v1alpha1.AgenticSessionSpec)) *sessionTest {
	t.Helper()
	return createSessionIn(t, sessionsNamespace, "session-", runner, prompt, change)
}

func createSessionIn(t *testing.T, ns, name, runner, prompt string, change func(spec *v1alpha1.AgenticSessionSpec)) *sessionTest {
	t.Helper()
	createRunners(t, ns)
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: ns}}
	s.Spec.Runner, s.Spec.Prompt = runner, prompt
	if s.Name = name; strings.HasSuffix(name, "-") {
		s.Name, s.GenerateName = "", name
	}
	if change != nil {
		change(&s.Spec)
	}
	require.NoError(t, cluster.Create(t.Context(), s))
	return trackSession(t, s)
}

// trackSession deletes the session at the end of the test.
func trackSession(t *testing.T, s *v1alpha1.AgenticSession) *sessionTest {
	deleteAtEnd(t, s)
	return &sessionTest{t, s}
}

func (s *sessionTest) getSession() *v1alpha1.AgenticSession {
	s.t.Helper()
	require.NoError(s.t, cluster.Get(s.t.Context(), client.ObjectKeyFromObject(s.s), s.s))
	return s.s
}

// waitUntil waits for the session to satisfy the condition.
func (s *sessionTest) waitUntil(what string, condition func(status *v1alpha1.AgenticSessionStatus) bool) {
	s.t.Helper()
	poll.Until(s.t, s.s.Name+" "+what, func() bool { return condition(&s.getSession().Status) })
}

// waitForPhase waits until the session has this phase. It fails at once if the session completed or
// failed instead.
func (s *sessionTest) waitForPhase(phase v1alpha1.SessionPhase) {
	s.t.Helper()
	s.waitUntil("to be "+string(phase), func(status *v1alpha1.AgenticSessionStatus) bool {
		if (status.Phase == v1alpha1.SessionCompleted || status.Phase == v1alpha1.SessionFailed) && status.Phase != phase {
			s.t.Fatalf("the phase is %s, want %s", status.Phase, phase)
		}
		return status.Phase == phase
	})
}

// wantRuns checks the outcomes of the attempts, each as in "1/2 Failed OOMKilled 137". It ignores the
// exit code of a stopped attempt, whose Pod may be deleted before the code is observed.
func (s *sessionTest) wantRuns(want ...string) {
	s.t.Helper()
	var got []string
	for _, run := range s.s.Status.Attempts {
		line := fmt.Sprintf("%d/%d %s", run.Run, run.Attempt, run.Outcome)
		if run.Reason != string(run.Outcome) {
			line += " " + run.Reason
		}
		if run.ExitCode != nil && run.Outcome != v1alpha1.RunStopped {
			line += fmt.Sprintf(" %d", *run.ExitCode)
		}
		got = append(got, line)
	}
	require.True(s.t, slices.Equal(got, want), "attempts ended %q, want %q", got, want)
}

func (s *sessionTest) wantSummary(want string) {
	s.t.Helper()
	r := s.s.Status.Result
	require.True(s.t, r != nil && r.Summary == want, "the result is %+v, want %q", r, want)
}

func (s *sessionTest) wantCondition(kind string, status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	c := meta.FindStatusCondition(s.getSession().Status.Conditions, kind)
	require.True(s.t, c != nil && c.Status == status && c.Reason == reason, "%s is %+v, want %s %s", kind, c, status, reason)
}

// waitForEvents waits for events with these reasons, which are emitted after the status is stored.
func (s *sessionTest) waitForEvents(want ...string) {
	s.t.Helper()
	poll.Until(s.t, fmt.Sprintf("%s to have the events %v", s.s.Name, want), func() bool {
		var list eventsv1.EventList
		require.NoError(s.t, cluster.List(s.t.Context(), &list, client.InNamespace(s.s.Namespace)))
		found := map[string]bool{}
		for i := range list.Items {
			if list.Items[i].Regarding.UID == s.s.UID {
				found[list.Items[i].Reason] = true
			}
		}
		return !slices.ContainsFunc(want, func(reason string) bool { return !found[reason] })
	})
}

func (s *sessionTest) patchSpec(spec string) {
	s.t.Helper()
	require.NoError(s.t, cluster.Patch(s.t.Context(), s.s, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

func (s *sessionTest) deleteSession() {
	s.t.Helper()
	require.NoError(s.t, cluster.Delete(s.t.Context(), s.s, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// currentPod returns the Pod of the open attempt.
func (s *sessionTest) currentPod() *corev1.Pod {
	s.t.Helper()
	pods := podsWith(s.t, s.s.Namespace, map[string]string{batchv1.JobNameLabel: s.getSession().Status.Attempt.JobName})
	require.True(s.t, len(pods) == 1, "Job %s has %d Pods", s.s.Status.Attempt.JobName, len(pods))
	return &pods[0]
}

// childObjectLists returns lists of all kinds of objects that a session can have.
func childObjectLists() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		"Job": &batchv1.JobList{}, "Pod": &corev1.PodList{}, "Secret": &corev1.SecretList{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaimList{},
		"ServiceAccount": &corev1.ServiceAccountList{}, "Service": &corev1.ServiceList{}, "NetworkPolicy": &networkingv1.NetworkPolicyList{},
		"Lease": &coordinationv1.LeaseList{}, "Role": &rbacv1.RoleList{}, "RoleBinding": &rbacv1.RoleBindingList{},
	}
}

// countChildObjects counts the objects of sessions by the session's UID and by kind.
func countChildObjects(t *testing.T, ns string) map[types.UID]map[string]int {
	t.Helper()
	found := map[types.UID]map[string]int{}
	for kind, list := range childObjectLists() {
		require.NoError(t, cluster.List(t.Context(), list, client.InNamespace(ns), client.HasLabels{agenticsession.LabelSessionUID}))
		require.NoError(t, meta.EachListItem(list, func(object runtime.Object) error {
			accessor, err := meta.Accessor(object)
			if err != nil {
				return err
			}
			uid := types.UID(accessor.GetLabels()[agenticsession.LabelSessionUID])
			if found[uid] == nil {
				found[uid] = map[string]int{}
			}
			found[uid][kind]++
			return nil
		}))
	}
	return found
}
