//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
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

func testSessionResult(t *testing.T) {
	s := createSession(t, echoRunner, "Fix the test.\n/cost 0.12\n/sleep 3s\nThe test is fixed.", nil)
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantRuns("1/1 Completed 0")
	s.wantSummary("Echoed 2 lines")
	status := &s.s.Status
	usage := status.Result.Usage
	require.True(t, usage != nil && string(usage.Raw) == `{"lines":2,"words":7}`, "the usage is %s", usage)
	if cost := status.TotalCostUSD; cost == nil || *cost != "0.12" {
		t.Errorf("the total cost is %v", cost)
	}
	require.True(t, status.Result.SDKSessionID == s.s.Name+"-r1-a1", "the sdkSessionID is %q", status.Result.SDKSessionID)
	for _, condition := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionSpecAccepted, v1alpha1.ConditionRunnerStarted,
		v1alpha1.ConditionSucceeded, v1alpha1.ConditionRunnerReporting,
	} {
		require.True(t, meta.IsStatusConditionTrue(status.Conditions, condition), "%s is not True", condition)
	}
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyEnforced)
	s.waitForEvents(v1alpha1.EventJobCreated, v1alpha1.EventRunning, v1alpha1.EventCompleted)
	s.wantColumns("NAME PHASE RUN REASON PUSHED COST AGE", s.s.Name+" Completed 1 Completed 0.12")
}

type sessionTest struct {
	t *testing.T
	s *v1alpha1.AgenticSession
}

// wantColumns checks the output of kubectl get, except the age.
func (s *sessionTest) wantColumns(header, row string) {
	s.t.Helper()
	output, err := newKubectlCommand(s.t.Context(), "get", "as", "-n", s.s.Namespace, s.s.Name).Output()
	require.NoError(s.t, err)
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	require.True(s.t, len(lines) == 2 && strings.Join(strings.Fields(lines[0]), " ") == header && strings.HasPrefix(strings.Join(strings.Fields(lines[1]), " "), row+" "),
		"kubectl get shows:\n%s\nwant:\n%s\n%s", output, header, row)
}

const confinementScript = `
field() { grep "^$1:" /proc/self/status | tr -d '\t'; }
writable() { (: > "$1/probe") 2> /dev/null && echo "$1 is writable"; rm -f "$1/probe"; }
{
	echo "user $(id -u), $(field CapEff), $(field CapBnd), $(field NoNewPrivs), $(field Seccomp)"
	for dir in / /etc /usr /root /var/run /etc/agentic /workspace "$HOME" "$TMPDIR"; do writable $dir || true; done
	[ -e /var/run/secrets ] && echo "a token is mounted"
	env | grep -c '_SERVICE_PORT=' || true
} > /tmp/found
awk '{printf "%s|", $0}' /tmp/found > /tmp/line
printf '{"summary": "%s"}' "$(cat /tmp/line)" > "$AGENTIC_RESULT_FILE"
`

func testSessionConfined(t *testing.T) {
	s := createSession(t, shellRunner, confinementScript, nil)
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantSummary(strings.Join([]string{
		"user 65532, CapEff:0000000000000000, CapBnd:0000000000000000, NoNewPrivs:1, Seccomp:2",
		"/workspace is writable", "/home/agent is writable", "/tmp is writable",
		"1", // the variable of the API server
		"",
	}, "|"))
}

// setAllFeatures sets every field that adds an object or a part of the Pod.
func setAllFeatures(spec *v1alpha1.AgenticSessionSpec) {
	spec.Interactive = true
	spec.Workspace = &v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("100Mi"))}
	spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"LANGUAGE": "en"}
	spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "none"}, Optional: true}}
}

func testSessionRestricted(t *testing.T) {
	// The namespace must refuse a Pod without a security context, or the test proves nothing.
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: sessionsNamespace}}
	plain.Spec.Containers = []corev1.Container{{Name: "plain", Image: busyboxImage}}
	err := cluster.Create(t.Context(), plain, client.DryRunAll)
	require.True(t, apierrors.IsForbidden(err), "the namespace does not enforce the profile restricted: %v", err)
	s := createSession(t, sidecarRunner, "", setAllFeatures)
	s.waitForPhase(v1alpha1.SessionRunning)
	found := countChildObjects(t, sessionsNamespace)[s.s.UID]
	require.True(t, len(found) == len(childObjectLists()), "the session has the objects %v", found)
	require.True(t, s.currentPod().Status.ContainerStatuses[0].Ready, "the session is Running before its port accepts connections")
	require.Equal(t, "Hello, agent.", s.postMessage("Hello, agent."))
	// The sidecar never ends by itself, and must not keep the session from completing.
	s.postMessage("/exit")
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantRuns("1/1 Completed 0")
}

// logbookScript writes each start and stop into a file in the workspace. It exits by itself only in the second attempt.
const logbookScript = `
cd "$AGENTIC_WORKSPACE"
trap 'echo stopped >> history; exit 143' TERM
echo "started $AGENTIC_RUN/$AGENTIC_ATTEMPT" >> history
if [ $(grep -c started history) = 2 ]; then
	printf '{"summary": "%s"}' "$(tr '\n' ' ' < history)" > "$AGENTIC_RESULT_FILE"
	exit 0
fi
echo waiting
sleep 3600 & wait
`

// waitForLogLine waits for a line in the runner's log: the phase Running starts before the script reaches it.
func (s *sessionTest) waitForLogLine(line string) {
	s.t.Helper()
	pod := s.currentPod()
	poll.Until(s.t, "the runner to log "+line, func() bool {
		return slices.Contains(strings.Split(readLog(s.t, pod.Namespace, pod.Name, v1alpha1.RunnerContainer), "\n"), line)
	})
}

func setPersistentWorkspace(spec *v1alpha1.AgenticSessionSpec) {
	spec.Workspace = &v1alpha1.WorkspaceClaim{Size: new(resource.MustParse("100Mi"))}
}

func testSessionEvicted(t *testing.T) {
	s := createSession(t, shellRunner, logbookScript, func(spec *v1alpha1.AgenticSessionSpec) {
		setPersistentWorkspace(spec)
		spec.Retry = &v1alpha1.SessionRetry{OnDisruption: true}
	})
	s.waitForPhase(v1alpha1.SessionRunning)
	s.waitForLogLine("waiting")
	pod := s.currentPod()
	require.NoError(t, clientset.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
	}))
	s.waitForPhase(v1alpha1.SessionCompleted)
	s.wantRuns("1/1 Retried Evicted 143", "1/2 Completed 0")
	s.wantSummary("started 1/1 stopped started 1/2 ")
	status := &s.s.Status
	require.True(t, status.Disruptions == 1 && status.Retries == 0, "%d disruptions, %d retries", status.Disruptions, status.Retries)
}

func testSessionIdle(t *testing.T) {
	setInactivityTimeout := func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Limits.InactivityTimeout = v1alpha1.NewDuration(20 * time.Second)
	}
	idle := createSession(t, interactiveRunner, "/idle 1h", setInactivityTimeout)
	busy := createSession(t, interactiveRunner, "/sleep 45s", setInactivityTimeout)
	idle.waitForPhase(v1alpha1.SessionStopped)
	idle.wantRuns("1/1 Stopped Inactivity")
	idle.waitForEvents(v1alpha1.EventInactivityTimeout, v1alpha1.EventStopped)
	busy.waitForPhase(v1alpha1.SessionCompleted)
	busy.wantRuns("1/1 Completed 0")
	lease := &coordinationv1.Lease{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(busy.s), lease))
	holder := lease.Spec.HolderIdentity
	require.True(t, holder != nil && *holder == busy.s.Name+"-r1-a1", "the Lease is held by %v", holder)
}

func testSessionMisconfigured(t *testing.T) {
	wantMessages := map[*sessionTest]string{}
	for want, change := range map[string]func(spec *v1alpha1.AgenticSessionSpec){
		"image will run as root": func(spec *v1alpha1.AgenticSessionSpec) { spec.Runner = rootRunner },
		`secret "no-such" not found`: func(spec *v1alpha1.AgenticSessionSpec) {
			spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "no-such"}}}}
		},
		"check the Pod's events for a missing Secret or volume": func(spec *v1alpha1.AgenticSessionSpec) {
			spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "no-such"}}}
		},
	} {
		s := createSession(t, shellRunner, "true", func(spec *v1alpha1.AgenticSessionSpec) {
			spec.Limits.StartupTimeout = v1alpha1.NewDuration(60 * time.Second) // a busy node needs time to prepare a Pod
			change(spec)
		})
		wantMessages[s] = want
	}
	for s, want := range wantMessages {
		s.waitForPhase(v1alpha1.SessionFailed)
		s.wantRuns("1/1 Failed ConfigError")
		if message := s.s.Status.Attempts[0].Message; !strings.Contains(message, want) {
			t.Errorf("message %q, want %q in it", message, want)
		}
	}
}

// postMessage posts a message to the session's Service from an allowed Pod, and returns the answer.
func (s *sessionTest) postMessage(text string) (answer string) {
	s.t.Helper()
	// nc, because wget crashes in some static builds of busybox. It tries again because the
	// Service leads to a Pod only some time after that is ready.
	post := fmt.Sprintf(`for attempt in 1 2 3 4 5 6 7 8 9 10; do
	answer=$(printf 'POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' | nc -w 60 %s 8080 | tr -d '\r')
	[ -n "$answer" ] && break
	sleep 1
done
echo "$answer" | sed '1,/^$/d' > /dev/termination-log`, len(text), text, s.s.Name)
	pod := createScriptPod(s.t, "visitor-", visitorLabels, post)
	waitForSuccess(s.t, pod)
	return strings.TrimSpace(pod.Status.ContainerStatuses[0].State.Terminated.Message)
}

// accessScript reports, in its first run, what the runner can read. The second run reports the identifier that the first one wrote.
const accessScript = `
if [ "$AGENTIC_RUN" = 1 ]; then
	printf '{"summary": "%s|%s|%s|%s", "sdkSessionId": "$(MODEL_token)$$(HOME)"}' "$(ls /secrets/listed | tr '\n' ' ')" \
		"$(env | grep ^MODEL_)" "$(ls /var/run/secrets | tr '\n' ' ')" "$(cut -d. -f2 /var/run/secrets/tokens/cloud)" > "$AGENTIC_RESULT_FILE"
else
	printf '{"summary": "%s"}' "$AGENTIC_SDK_SESSION_ID" > "$AGENTIC_RESULT_FILE"
fi
`

func testSessionSecrets(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "listed", Namespace: sessionsNamespace}, StringData: map[string]string{"token": "hunter2", "other": "b"}}
	if err := cluster.Create(t.Context(), secret); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	s := createSession(t, tokenRunner, accessScript, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.SecretMounts = []v1alpha1.SecretMount{{LocalReference: v1alpha1.LocalReference{Name: "listed"}}}
		spec.EnvFrom = []corev1.EnvFromSource{{Prefix: "MODEL_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "listed"}}}}
	})
	s.waitForPhase(v1alpha1.SessionCompleted)
	require.True(t, s.s.Status.Result != nil, "the session has no result")
	parts := strings.Split(s.s.Status.Result.Summary, "|")
	require.True(t, len(parts) == 4 && slices.Equal(parts[:3], []string{"token ", "MODEL_token=hunter2", "tokens "}),
		"the runner reads %q, want one file, one variable, and only the directory with tokens", parts)
	payload, err := base64.RawURLEncoding.DecodeString(parts[3])
	require.NoError(t, err)
	var claims struct {
		Aud []string `json:"aud"`
		Sub string   `json:"sub"`
	}
	require.NoError(t, json.Unmarshal(payload, &claims))
	if want := "system:serviceaccount:" + sessionsNamespace + ":" + s.s.Name + "-session"; !slices.Equal(claims.Aud, []string{"cloud.example"}) || claims.Sub != want {
		t.Errorf("the token is for %q, of %s, want cloud.example and %s", claims.Aud, claims.Sub, want)
	}
	s.patchSpec(`{"rerun": {"id": "2"}}`)
	s.waitUntil("to complete its second run", func(status *v1alpha1.AgenticSessionStatus) bool {
		return status.Run == 2 && status.Phase == v1alpha1.SessionCompleted
	})
	s.wantSummary("$(MODEL_token)$$(HOME)")
}

func testPoliciesIgnored(t *testing.T) {
	required := createUnenforcedSession(t, v1alpha1.NetworkIsolationRequired)
	preferred := createUnenforcedSession(t, v1alpha1.NetworkIsolationPreferred)
	preferred.waitForPhase(v1alpha1.SessionCompleted)
	required.waitForPhase(v1alpha1.SessionFailed)
	required.wantRuns("1/1 Failed " + v1alpha1.ReasonNetworkNotEnforced) // without an exit code: the agent did not start
	required.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
	preferred.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotEnforced)
}

// createUnenforcedSession creates a session where NetworkPolicies are ignored. Its SessionRunner requires or prefers a restricted network.
func createUnenforcedSession(t *testing.T, isolation v1alpha1.NetworkIsolation) *sessionTest {
	t.Helper()
	runner := createRunnerIn(t, unenforcedNamespace, "isolation-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command, spec.Network.Isolation = busyboxImage, shellCommand, isolation
	})
	return createSessionIn(t, unenforcedNamespace, "isolated-", runner, "echo started", nil)
}

// The SessionRunners of the tests.
const (
	// echoRunner uses the reference runner, which calls no model.
	echoRunner = "echo"
	// interactiveRunner is echoRunner with an activity Lease and ingress from visitors.
	interactiveRunner = "interactive"
	// deafRunner is interactiveRunner, but ignores SIGTERM.
	deafRunner = "deaf"
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
		deafRunner: func(spec *v1alpha1.SessionRunnerSpec) {
			setInteractive(spec)
			spec.Image = busyboxImage
			testbuilder.RunnerContainer(spec).Command = []string{"sh", "-c", "trap '' TERM; httpd -p 8080 -h /tmp; while true; do sleep 1; done"}
		},
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

// waitForPhase waits until the session has this phase. It fails at once if the session completed or failed instead.
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
