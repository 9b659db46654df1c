//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/workload"
	"github.com/yardmaster/yardmaster/test/modelserver"
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
	cost := status.TotalCostUSD
	require.True(t, cost != nil && *cost == "0.12", "the total cost is %v", cost)
	require.True(t, status.Result.SDKSessionID == s.s.Name+"-r1-a1", "the sdkSessionID is %q", status.Result.SDKSessionID)
	for _, condition := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionSpecAccepted, v1alpha1.ConditionRunnerStarted,
		v1alpha1.ConditionSucceeded, v1alpha1.ConditionRunnerReporting,
	} {
		require.True(t, meta.IsStatusConditionTrue(status.Conditions, condition), "%s is not True", condition)
	}
	s.wantCondition(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyEnforced)
	s.waitForEvents(v1alpha1.EventJobCreated, v1alpha1.EventRunning, v1alpha1.EventCompleted)
	output, err := newKubectlCommand(t.Context(), "get", "as", "-n", s.s.Namespace, s.s.Name).Output()
	require.NoError(t, err)
	shown := strings.Join(strings.Fields(string(output)), " ")
	want := "NAME PHASE RUN REASON PUSHED COST AGE " + s.s.Name + " Completed 1 Completed 0.12 "
	require.True(t, strings.HasPrefix(shown, want), "kubectl get shows:\n%s\nwant: %s", output, want)
}

type sessionTest struct {
	t *testing.T
	s *v1alpha1.AgenticSession
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
	require.True(t, len(found) == len(childKinds), "the session has the objects %v", found)
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
	holder := get(t, &coordinationv1.Lease{}, client.ObjectKeyFromObject(busy.s)).Spec.HolderIdentity
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
		message := s.s.Status.Attempts[0].Message
		require.True(t, strings.Contains(message, want), "message %q, want %q in it", message, want)
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
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), secret)))
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
	echoRunner        = "echo"        // uses the reference runner, which calls no model
	interactiveRunner = "interactive" // echoRunner with an activity Lease and ingress from visitors
	deafRunner        = "deaf"        // interactiveRunner, but ignores SIGTERM
	sidecarRunner     = "sidecar"     // interactiveRunner with a sidecar
	shellRunner       = "shell"       // runs the prompt as a shell script
	tokenRunner       = "token"       // shellRunner with a token for another audience and a Secret
	rootRunner        = "root"        // shellRunner with an image that runs as root

	runnerImage = "example-runner:v1"
)

var shellCommand = []string{"sh", "-ec", `. "$AGENTIC_PROMPT_FILE"`}

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
		r := newRunner(metav1.ObjectMeta{Name: name, Namespace: ns}, configure)
		require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), r)))
	}
}

// newRunner returns a SessionRunner for the reference runner, with low requests, so that many Pods fit on the node.
func newRunner(metadata metav1.ObjectMeta, change func(spec *v1alpha1.SessionRunnerSpec)) *v1alpha1.SessionRunner {
	r := &v1alpha1.SessionRunner{ObjectMeta: metadata}
	r.Spec.Image, testbuilder.RunnerPod(&r.Spec).SecurityContext.RunAsUser = runnerImage, new(int64(65532))
	r.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source("none"), testbuilder.Source("no-such", "token")}
	testbuilder.RunnerContainer(&r.Spec).Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
	}
	change(&r.Spec)
	return r
}

// apiServerEgress returns rules for the API server: for its Service, and for the endpoints.
func apiServerEgress(t *testing.T) []v1alpha1.SessionEgress {
	t.Helper()
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	service, slice := get(t, &corev1.Service{}, key), get(t, &discoveryv1.EndpointSlice{}, key)
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
	return get(s.t, s.s, client.ObjectKeyFromObject(s.s))
}

func (s *sessionTest) waitUntil(what string, condition func(status *v1alpha1.AgenticSessionStatus) bool) {
	s.t.Helper()
	poll.Until(s.t, s.s.Name+" "+what, func() bool { return condition(&s.getSession().Status) })
}

// waitForPhase waits until the session has this phase. It fails at once if the session completed or failed instead.
func (s *sessionTest) waitForPhase(phase v1alpha1.SessionPhase) {
	s.t.Helper()
	s.waitUntil("to be "+string(phase), func(status *v1alpha1.AgenticSessionStatus) bool {
		require.True(s.t, status.Phase != v1alpha1.SessionCompleted && status.Phase != v1alpha1.SessionFailed || status.Phase == phase,
			"the phase is %s, want %s", status.Phase, phase)
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
		return !slices.ContainsFunc(want, func(reason string) bool {
			return !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID == s.s.UID && e.Reason == reason })
		})
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

// childKinds are all kinds of objects that a session can have.
var childKinds = []schema.GroupVersionKind{
	batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("Service"), networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
	coordinationv1.SchemeGroupVersion.WithKind("Lease"), rbacv1.SchemeGroupVersion.WithKind("Role"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
}

// countChildObjects counts the objects of sessions by the session's UID and by kind.
func countChildObjects(t *testing.T, ns string) map[types.UID]map[string]int {
	t.Helper()
	found := map[types.UID]map[string]int{}
	for _, kind := range childKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		require.NoError(t, cluster.List(t.Context(), list, client.InNamespace(ns), client.HasLabels{agenticsession.LabelSessionUID}))
		for i := range list.Items {
			uid := types.UID(list.Items[i].Labels[agenticsession.LabelSessionUID])
			if found[uid] == nil {
				found[uid] = map[string]int{}
			}
			found[uid][kind.Kind]++
		}
	}
	return found
}

const (
	forgePassword = "token-of-the-forge"
	agentKey      = "sk-key-of-the-agent"
	providerKey   = "sk-key-of-the-provider"
)

var agentManifest = template.Must(template.New("agent").Parse(`
apiVersion: v1
kind: ConfigMap
metadata: {name: {{.Name}}}
data:
  ca.crt: |
{{.CA}}
  prices.yaml: |
    models: {claude-sonnet-4-5: {input: 0, output: 1000, maxInputTokens: 200000, maxOutputTokens: 64000}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{.Name}}-transcripts}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: yardmaster.dev/v1alpha1
kind: SessionRunner
metadata: {name: {{.Name}}}
spec:
  image: {{.Image}}
  template:
    spec:
      securityContext: {runAsUser: 65532}
      containers:
      - name: runner
        command: {{.Command}}
        env:
        - {name: AGENT_API_KEY, valueFrom: {secretKeyRef: {name: {{.Name}}, key: AGENT_API_KEY}}}
  caBundle: {name: {{.Name}}}
  git: {secretRef: {name: {{.Name}}}, repositories: ["{{.ForgeHost}}/team/*"], forge: {type: GitHub}}
  archive: {claimRef: {name: {{.Name}}-transcripts}}
  model: {provider: Anthropic, secretRef: {name: {{.Name}}}, baseURL: "{{.ModelURL}}", prices: {name: {{.Name}}}}
  limits: {maxCostUSD: 3}
  activityLease: true
  network:
    egress:
    - {to: {podSelector: {matchLabels: {app: {{.Name}}-forge}}}, ports: [{port: 1024, endPort: 65535}]}
---
apiVersion: yardmaster.dev/v1alpha1
kind: AgenticSession
metadata: {name: {{.Name}}}
spec:
  runner: {{.Name}}
  prompt: Write the file that is missing.
  agent: {model: claude-sonnet-4-5}
  repos: [{url: "{{.CloneURL}}", autoPush: true, depth: 1}]
  workspace: {}
`))

// agentTest is an agent with a git server, a stub of a forge, and a model server in a Pod.
type agentTest struct {
	*sessionTest

	Name, Image, Command, Key, Password, CA string
	ModelURL, ForgeHost, CloneURL           string
}

// newAgentTest starts the Pod with the servers. The model answers with the turns of a script.
func newAgentTest(t *testing.T, name string, turns ...modelserver.Turn) *agentTest {
	t.Helper()
	a := &agentTest{Name: name, Key: agentKey, Password: forgePassword}
	script, err := json.Marshal(turns)
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: a.forge(), Namespace: sessionsNamespace, Labels: map[string]string{"app": a.forge()}}}
	pod.Spec = restrictedPod("forge", "agent:v1", "/forge")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "HOME", Value: "/tmp"},
		{Name: "MODEL_SCRIPT", Value: string(script)},
		{Name: "FORGE_PASSWORD", ValueFrom: a.secretKey("password")},
		{Name: "MODEL_KEY", ValueFrom: a.secretKey("ANTHROPIC_API_KEY")},
	}
	listens := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: listens, PeriodSeconds: 1}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: sessionsNamespace}}
	secret.StringData = map[string]string{"password": forgePassword, "AGENT_API_KEY": agentKey, "ANTHROPIC_API_KEY": providerKey}
	createUntilEnd(t, secret)
	createUntilEnd(t, pod)
	poll.Until(t, pod.Name+" to be ready", func() bool {
		return slices.ContainsFunc(get(t, pod, client.ObjectKeyFromObject(pod)).Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
	info := struct{ CloneURL, Host, CA, ModelURL string }{}
	require.NoError(t, json.Unmarshal([]byte(a.ask(t, "/info")), &info))
	a.ForgeHost, a.CloneURL, a.ModelURL = info.Host, info.CloneURL, info.ModelURL
	a.CA = "    " + strings.ReplaceAll(strings.TrimSpace(info.CA), "\n", "\n    ")
	return a
}

func (a *agentTest) forge() string { return a.Name + "-forge" }

func (a *agentTest) secretKey(key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: a.Name}, Key: key}}
}

func (a *agentTest) ask(t *testing.T, path string) string {
	t.Helper()
	raw, err := clientset.CoreV1().Pods(sessionsNamespace).ProxyGet("http", a.forge(), "8080", path, nil).DoRaw(t.Context())
	require.NoError(t, err)
	return string(raw)
}

func (a *agentTest) apply(t *testing.T) {
	t.Helper()
	manifest := &strings.Builder{}
	require.NoError(t, agentManifest.Execute(manifest, a))
	applyManifest(t, sessionsNamespace, manifest.String())
	a.sessionTest = trackSession(t, &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: sessionsNamespace}})
}

const askTheModel = `ask() { wget -q -O - --header "X-Api-Key: $ANTHROPIC_API_KEY" --header 'Content-Type: application/json' --post-data \
  '{"model":"claude-sonnet-4-5","max_tokens":100,"tools":[{"name":"x","input_schema":{}}],"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages" > /dev/null 2>&1; }
`

// scriptedAgent edits a file, asks the model for one dollar until its budget is spent, reports a lower cost, and searches for credentials
// that it should not find. Its own text does not contain the secrets as a whole.
const scriptedAgent = askTheModel + `cat > /dev/null
echo '{"type":"started","conversation":"c-1","model":"scripted"}'
for secret in "token-of""-the-forge" "sk-key-of""-the-provider"; do
  { env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline .git/config /git/*/config; } 2> /dev/null | grep -aF "$secret" && exit 3
  grep -rlF "$secret" /workspace /home /tmp /git /archive /model /etc /usr/local 2> /dev/null && exit 4
done
cat /proc/1/environ > /dev/null 2>&1 && exit 8
ask && ask && ask || exit 6
ask && exit 7
test "$(git rev-list --count HEAD)" = 1 || exit 5
printf hello > a.txt
echo "{\"type\":\"text\",\"text\":\"my key is $AGENT_API_KEY\"}"
echo '{"type":"usage","usage":{"inputTokens":100,"outputTokens":30},"costUSD":0.25}'
echo '{"type":"result","text":"Wrote the file."}'`

func testAgentOpensAPullRequest(t *testing.T) {
	oneDollar := modelserver.Turn{Text: "x", Usage: modelserver.Usage{Output: 1000}}
	a := newAgentTest(t, "scripted-agent", oneDollar, oneDollar, oneDollar, oneDollar)
	a.Image = "agent:v1"
	a.Command = fmt.Sprintf("[session-runner, --profile, events, --, sh, -c, %q]", strings.ReplaceAll(scriptedAgent, "$", "$$"))
	a.apply(t)
	a.checkPullRequest(t, "3")
}

func (a *agentTest) checkPullRequest(t *testing.T, cost v1alpha1.Number) {
	t.Helper()
	a.waitForPhase(v1alpha1.SessionCompleted)
	status := &a.s.Status
	total := status.TotalCostUSD
	require.True(t, total != nil && (cost == "" || *total == cost), "the cost is %v", total)
	result := status.Result
	require.True(t, result != nil && len(result.Repositories) == 1 && result.Transcript != nil, "the result is %+v", result)
	r := &result.Repositories[0]
	require.True(t, r.Pushed && r.Error == "" && r.PullRequestURL == "https://"+a.ForgeHost+"/team/shop/pull/1", "the repository is %+v", r)
	if commits := a.ask(t, "/commits"); !strings.Contains(commits, "Wrote the file. (session/"+a.Name+"-") || !strings.Contains(commits, "+++ b/a.txt") {
		t.Errorf("the commits are %s", commits)
	}
	require.True(t, result.Transcript.Error == "" && strings.HasPrefix(result.Transcript.Location, sessionsNamespace+"/"+a.Name+"/"),
		"the transcript is %+v", result.Transcript)
	a.checkSecrets(t)
}

// checkSecrets searches the logs of all containers, the events and the objects of the session, and what it pushed.
func (a *agentTest) checkSecrets(t *testing.T) {
	t.Helper()
	found := map[string]string{}
	pods := podsWith(t, sessionsNamespace, map[string]string{"yardmaster.dev/session": a.Name})
	require.Equal(t, 1, len(pods))
	pod := &pods[0]
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		found["log of "+c.Name] = readLog(t, sessionsNamespace, pod.Name, c.Name)
	}
	for _, kind := range []string{"events", "pods", "jobs", "agenticsessions", "sessionrunners", "leases", "configmaps"} {
		output, err := newKubectlCommand(t.Context(), "get", kind, "-n", sessionsNamespace, "-o", "yaml").Output()
		require.NoError(t, err)
		found[kind] = string(output)
	}
	found["commits"] = a.ask(t, "/commits")
	for where, text := range found {
		for _, secret := range []string{forgePassword, agentKey, providerKey} {
			require.True(t, !strings.Contains(text, secret), "%s contain %s", where, secret)
		}
	}
	require.Contains(t, found["log of "+v1alpha1.RunnerContainer], `"type":"result"`)
}

// testAgentAnswersThePlugin talks to a session through a port that the API server forwards.
func testAgentAnswersThePlugin(t *testing.T) {
	runner := newRunner(metav1.ObjectMeta{Name: "scripted-pair", Namespace: sessionsNamespace}, func(spec *v1alpha1.SessionRunnerSpec) { spec.Image = "agent:v1" })
	testbuilder.RunnerContainer(&runner.Spec).Command = []string{"session-runner", "--profile", "events", "--", "sh", "-c", `read -r line; printf '{"type":"text","text":"You said %s"}\n{"type":"result","text":"x"}\n' "$$line"`}
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), runner)))
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "pair", Namespace: sessionsNamespace}}
	s.Spec.Runner, s.Spec.Interactive = runner.Name, true
	require.NoError(t, cluster.Create(t.Context(), s))
	pair := trackSession(t, s)
	pair.waitForPhase(v1alpha1.SessionRunning)
	for _, message := range []string{"first", "second"} {
		command := newPluginCommand(t, "session", "attach", "-n", sessionsNamespace, s.Name)
		command.Stdin = strings.NewReader(message + "\n")
		output, err := command.CombinedOutput()
		require.True(t, err == nil && strings.Contains(string(output), "You said "+message+"\nfinished"), "error %v, output %s", err, output)
	}
}

// The same with a real command line, whose image contains it: too large for CI.
func TestRealAgentOpensAPullRequest(t *testing.T) {
	skipUnlessSoaking(t)
	usage := modelserver.Usage{Input: 100, Output: 30}
	a := newAgentTest(t, "claude-code",
		modelserver.Turn{ToolCalls: []modelserver.ToolCall{{Name: "Write", Input: map[string]any{"file_path": "/workspace/shop/a.txt", "content": "hello"}}}, Usage: usage},
		modelserver.Turn{ToolCalls: []modelserver.ToolCall{{Name: "Bash", Input: map[string]any{"command": "env; git config --list", "description": "Look"}}}, Usage: usage},
		modelserver.Turn{Text: "Wrote the file.", Usage: usage})
	a.Image = "claude-code:v1"
	a.Command = "[session-runner, --profile, claude-code]"
	a.apply(t)
	a.checkPullRequest(t, "")
	if usage := a.s.Status.Result.Usage; usage == nil || !strings.Contains(string(usage.Raw), `"inputTokens":300`) || !strings.Contains(string(usage.Raw), `"complete":true`) {
		t.Errorf("usage %+v", usage)
	}
}

const (
	deletedSessionCount = 50 // the number of sessions that are deleted at once
	// childDeletionLimit is the maximum time until their objects are deleted, on an otherwise idle node with two cores.
	childDeletionLimit = 30 * time.Second
)

func testSessionsDeleted(t *testing.T) { wantChildrenDeletedInTime(t, createDeafSessions(t)) }

func testSessionsDeletedWithoutOperator(t *testing.T) {
	sessions := createDeafSessions(t)
	scaleOperatorToZero(t)
	wantChildrenDeletedInTime(t, sessions)
}

// createDeafSessions creates sessions that ignore SIGTERM, with all kinds of objects, and waits until they run.
func createDeafSessions(t *testing.T) (sessions []*sessionTest) {
	t.Helper()
	for i := range deletedSessionCount {
		sessions = append(sessions, createSessionIn(t, sessionsNamespace, fmt.Sprintf("deaf-%d-", i), deafRunner, "", setAllFeatures))
	}
	for _, s := range sessions {
		s.waitForPhase(v1alpha1.SessionRunning)
	}
	found := countChildObjects(t, sessionsNamespace)
	for _, s := range sessions {
		require.Equal(t, len(childKinds), len(found[s.s.UID]))
	}
	return sessions
}

// wantChildrenDeletedInTime deletes all sessions at once, and measures when the last object of each is deleted.
func wantChildrenDeletedInTime(t *testing.T, sessions []*sessionTest) {
	t.Helper()
	start, left, times := time.Now(), map[types.UID]bool{}, []time.Duration{}
	for _, s := range sessions {
		s.deleteSession()
		left[s.s.UID] = true
	}
	poll.Until(t, "all objects to be deleted", func() bool {
		found := countChildObjects(t, sessionsNamespace)
		for uid := range left {
			if found[uid] == nil {
				times = append(times, roundedSince(start))
				delete(left, uid)
			}
		}
		return len(left) == 0
	})
	slices.Sort(times)
	last := times[len(times)-1]
	t.Logf("%d sessions: all objects were deleted after %v (median), %v (last, target %v)", len(sessions), times[len(times)/2], last, childDeletionLimit)
	require.True(t, last <= childDeletionLimit, "objects existed for %v", last)
}

const (
	servicePort, otherPort = 8080, 9090 // of a server Pod; its Service has only the first
)

const serverScript = "httpd -p 9090 -h /tmp; exec httpd -f -p 8080 -h /tmp"

func testSessionEgress(t *testing.T) {
	server, other := createServerPod(t, "server"), createServerPod(t, "other-server")
	apiServer := apiServerEgress(t)
	service, endpoint := egressAddress(&apiServer[0]), egressAddress(&apiServer[1])
	named := fmt.Sprintf("%s.%s.svc:%d", server.Name, sessionsNamespace, servicePort)
	prompt := []string{endpoint, service, podAddress(server, servicePort), podAddress(server, otherPort), podAddress(other, servicePort), named}

	// Without restrictions all addresses must answer, or the test proves nothing.
	unrestricted := createSession(t, createRunnerWithEgress(t, "unrestricted-", v1alpha1.SessionEgress{
		To: testbuilder.Block("0.0.0.0/0"), Ports: testbuilder.PortRange(1, 65535),
	}), connectPrompt(prompt), nil)
	restrictedSession := createSession(t, createRunnerWithEgress(t, "restricted-", v1alpha1.SessionEgress{
		To: testbuilder.Block(server.Status.PodIP + "/32"), Ports: testbuilder.Ports(servicePort),
	}), connectPrompt(prompt), nil)
	unrestricted.waitForPhase(v1alpha1.SessionCompleted)
	unrestricted.wantReached(prompt, prompt)
	restrictedSession.waitForPhase(v1alpha1.SessionCompleted)
	// The cluster's DNS resolves the name.
	restrictedSession.wantReached(prompt, []string{podAddress(server, servicePort), named})
}

func testSessionIngress(t *testing.T) {
	interactive := createSession(t, interactiveRunner, "", func(spec *v1alpha1.AgenticSessionSpec) { spec.Interactive = true })
	// A session that is not interactive is not reachable, although it listens.
	noninteractive := createSession(t, shellRunner, "httpd -p 8080 -h /tmp; nc 127.0.0.1 8080 < /dev/null && echo listening; sleep 3600", nil)
	server := createServerPod(t, "unrestricted-server") // without a NetworkPolicy
	interactive.waitForPhase(v1alpha1.SessionRunning)
	noninteractive.waitForPhase(v1alpha1.SessionRunning)
	noninteractive.waitForLogLine("listening")
	for _, visit := range []struct {
		source string
		labels map[string]string
		to     *corev1.Pod
		want   bool
	}{
		{"a Pod in ingressFrom", visitorLabels, interactive.currentPod(), true},
		{"another Pod", nil, interactive.currentPod(), false},
		{"a Pod in ingressFrom", visitorLabels, noninteractive.currentPod(), false},
		{"another Pod", nil, server, true},
	} {
		got := canConnect(t, visit.labels, podAddress(visit.to, servicePort))
		require.True(t, got == visit.want, "%s reaches %s: %t, want %t", visit.source, visit.to.Name, got, visit.want)
	}
}

func createRunnerWithEgress(t *testing.T, name string, egress ...v1alpha1.SessionEgress) string {
	t.Helper()
	return createRunnerIn(t, sessionsNamespace, name, func(spec *v1alpha1.SessionRunnerSpec) { spec.Network.Egress = egress })
}

// createRunnerIn creates a SessionRunner for the reference runner.
func createRunnerIn(t *testing.T, ns, name string, change func(spec *v1alpha1.SessionRunnerSpec)) string {
	t.Helper()
	return createUntilEnd(t, newRunner(metav1.ObjectMeta{GenerateName: name, Namespace: ns}, change)).Name
}

func connectPrompt(addresses []string) string {
	return "/connect " + strings.Join(addresses, "\n/connect ")
}

func (s *sessionTest) wantReached(tried, reached []string) {
	s.t.Helper()
	want := "Echoed 0 lines"
	for _, address := range tried {
		verb := "did not reach"
		if slices.Contains(reached, address) {
			verb = "reached"
		}
		want += ", " + verb + " " + address
	}
	s.wantSummary(want)
}

func egressAddress(egress *v1alpha1.SessionEgress) string {
	return fmt.Sprintf("%s:%d", strings.TrimSuffix(egress.To.IPBlock.CIDR, "/32"), egress.Ports[0].Port.IntVal)
}

func podAddress(pod *corev1.Pod, port int32) string {
	return fmt.Sprintf("%s:%d", pod.Status.PodIP, port)
}

// createServerPod creates a Pod that serves two ports, and a Service of the same name for the first port. It waits until both are reachable.
func createServerPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": name}
	server := createScriptPod(t, name+"-", labels, serverScript)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: server.Name, Namespace: server.Namespace}}
	service.Spec.Selector, service.Spec.Ports = labels, []corev1.ServicePort{{Port: servicePort, TargetPort: intstr.FromInt32(servicePort)}}
	createUntilEnd(t, service)
	poll.Until(t, name+" to have an address", func() bool { return objectExists(t, server) && server.Status.PodIP != "" })
	// The node's proxy programs the Service a moment later.
	waitForSuccess(t, createScriptPod(t, "client-", nil, fmt.Sprintf(
		"until nc -w 1 %s %d < /dev/null && nc -w 1 %s %d < /dev/null; do sleep 0.1; done", server.Name, servicePort, server.Status.PodIP, otherPort)))
	return server
}

func canConnect(t *testing.T, labels map[string]string, address string) bool {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	script := fmt.Sprintf("nc -w 3 %s %s < /dev/null && printf reached > /dev/termination-log || true", host, port)
	pod := createScriptPod(t, "client-", labels, script)
	waitForSuccess(t, pod)
	return pod.Status.ContainerStatuses[0].State.Terminated.Message == "reached"
}

func waitForSuccess(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	poll.Until(t, pod.Name+" to succeed", func() bool { return objectExists(t, pod) && pod.Status.Phase == corev1.PodSucceeded })
}

func createScriptPod(t *testing.T, name string, labels map[string]string, script string) *corev1.Pod {
	t.Helper()
	return createUntilEnd(t, newPod(name, labels, busyboxImage, "sh", "-c", script))
}

// newPod returns a Pod without a session, which runs a command once.
func newPod(name string, labels map[string]string, image string, command ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: sessionsNamespace, Labels: labels}}
	pod.Spec = restrictedPod("main", image, command...)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

func createUntilEnd[T client.Object](t *testing.T, object T) T {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	deleteAtEnd(t, object)
	return object
}

func deleteAtEnd(t *testing.T, object client.Object) {
	t.Cleanup(func() {
		if t.Failed() {
			return // hack/with-cluster keeps a description of what exists after a failure
		}
		require.NoError(t, client.IgnoreNotFound(cluster.Delete(context.Background(), object)))
	})
}

const (
	probeImage = "egress-probe:v1"
	tlsPort    = 8443 // the port of a TLS server
)

func testSessionHosts(t *testing.T) {
	allowed, other := createTLSServer(t, newTLSServer("allowed-")), createTLSServer(t, newTLSServer("other-"))
	// A Pod in the network of the node has no address in the networks that the operator allows.
	private := newTLSServer("private-")
	private.Namespace, private.Spec.HostNetwork = privilegedNamespace, true
	private = createTLSServer(t, private)
	address := func(host string) string { return fmt.Sprintf("%s:%d", host, tlsPort) }
	reachable := []string{"https://" + address(hostName(allowed))}
	unreachable := []string{
		"https://" + address(hostName(other)), "https://" + address(hostName(private)),
		"https://" + address(allowed.Status.PodIP), "name:other.example.com@" + address(hostName(allowed)),
		"tcp:" + address(allowed.Status.PodIP), "tcp:" + address(hostName(allowed)), "tcp:" + egressAddress(&apiServerEgress(t)[1]),
		"dns:" + hostName(allowed), "dns:kubernetes.default.svc.cluster.local",
	}
	targets := slices.Concat(reachable, unreachable)

	// A Pod without a session reaches all of them, or the test proves nothing.
	free := createProbePod(t, "free-", "try", targets...)
	waitForSuccess(t, free)
	wantProbed(t, free, targets, nil)

	runner := createRunnerIn(t, sessionsNamespace, "hosts-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command = probeImage, append([]string{"/egressprobe", "try"}, targets...)
		spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{
			v1alpha1.EgressHost(address(hostName(allowed))), v1alpha1.EgressHost(address(hostName(private))),
		}}}
	})
	s := createSession(t, runner, "probe", nil)
	s.waitForPhase(v1alpha1.SessionCompleted)
	// The session has completed, so its status names no Job.
	pods := podsWith(t, sessionsNamespace, map[string]string{agenticsession.LabelSession: s.s.Name})
	require.Equal(t, 1, len(pods))
	wantProbed(t, &pods[0], reachable, unreachable)
	s.wantRefusalsLogged("HostNotAllowed", "AddressNotAllowed", "ServerNameMismatch")
}

func (s *sessionTest) wantRefusalsLogged(reasons ...string) {
	proxies := podsWith(s.t, sessionsNamespace, workload.Selector().MatchLabels)
	log := ""
	for i := range proxies {
		log += readLog(s.t, sessionsNamespace, proxies[i].Name, "")
	}
	for _, reason := range reasons {
		isLogged := slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
			return strings.Contains(line, `"reason":"`+reason+`"`) && strings.Contains(line, `"session":"`+s.s.Name+`"`)
		})
		require.True(s.t, isLogged, "no refusal with the reason %s is logged for session %s:\n%s", reason, s.s.Name, log)
	}
}

func wantProbed(t *testing.T, pod *corev1.Pod, reached, notReached []string) {
	t.Helper()
	log := readLog(t, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name)
	lines := strings.Split(log, "\n")
	for _, target := range reached {
		require.True(t, slices.Contains(lines, "reached "+target), "%s did not reach %s:\n%s", pod.Name, target, log)
	}
	for _, target := range notReached {
		require.True(t, slices.Contains(lines, "did not reach "+target), "%s reached %s:\n%s", pod.Name, target, log)
	}
}

func hostName(server *corev1.Pod) string {
	return server.Name + "." + server.Namespace + ".svc.cluster.local"
}

func newTLSServer(name string) *corev1.Pod {
	return newProbePod(name, "serve", fmt.Sprintf(":%d", tlsPort))
}

func createTLSServer(t *testing.T, server *corev1.Pod) *corev1.Pod {
	t.Helper()
	createUntilEnd(t, server)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: server.Name, Namespace: server.Namespace}}
	service.Spec.ClusterIP, service.Spec.Selector = corev1.ClusterIPNone, server.Labels
	service.Spec.Ports = []corev1.ServicePort{{Port: tlsPort}}
	createUntilEnd(t, service)
	poll.Until(t, server.Name+" to have an address", func() bool { return objectExists(t, server) && server.Status.PodIP != "" })
	waitForSuccess(t, createScriptPod(t, "client-", nil, fmt.Sprintf("until nc -w 1 %s %d < /dev/null; do sleep 0.1; done", hostName(server), tlsPort)))
	return server
}

func createProbePod(t *testing.T, name, command string, args ...string) *corev1.Pod {
	t.Helper()
	return createUntilEnd(t, newProbePod(name, command, args...))
}

func newProbePod(name, command string, args ...string) *corev1.Pod {
	return newPod(name, map[string]string{"probe": strings.TrimSuffix(name, "-")}, probeImage, append([]string{"/egressprobe", command}, args...)...)
}

// metadataAddress is where clouds serve credentials of the node.
const metadataAddress = "169.254.169.254:80"

// packetReceiver is a Pod that counts the packets that it receives, and what attackers of it try.
type packetReceiver struct {
	t       *testing.T
	pod     *corev1.Pod
	targets []string
	before  int // the number of packets before the attacks
}

// createPacketReceiver creates a receiver, and checks that it receives the packets of a Pod without a session.
func createPacketReceiver(t *testing.T) *packetReceiver {
	t.Helper()
	r := &packetReceiver{t: t, pod: createProbePod(t, "receiver-", "count", fmt.Sprintf(":%d", servicePort))}
	poll.Until(t, "the receiver to listen", func() bool {
		return objectExists(t, r.pod) && r.pod.Status.Phase == corev1.PodRunning && strings.Contains(r.log(), "listening")
	})
	for line := range strings.Lines(r.log()) {
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "address "); ok {
			for _, port := range []int{servicePort, otherPort} {
				to := net.JoinHostPort(address, strconv.Itoa(port))
				r.targets = append(r.targets, "tcp:"+to, "udp:"+to)
			}
		}
	}
	r.targets = append(r.targets, "tcp:"+egressAddress(&apiServerEgress(t)[1]), "tcp:"+metadataAddress)
	unused := r.packets()
	free := createProbePod(t, "free-", "try", r.targets...)
	waitForSuccess(t, free)
	wantProbed(t, free, []string{"tcp:" + podAddress(r.pod, servicePort)}, nil)
	poll.Until(t, "the packets of a Pod without a session", func() bool {
		r.before = r.packets()
		return r.before > unused
	})
	poll.Until(t, "its last packet", func() bool {
		last := r.before
		r.before = r.packets()
		return r.before == last
	})
	return r
}

func (r *packetReceiver) log() string {
	r.t.Helper()
	return readLog(r.t, r.pod.Namespace, r.pod.Name, "")
}

func (r *packetReceiver) packets() int {
	r.t.Helper()
	log := r.log()
	_, last, _ := strings.Cut(log[max(strings.LastIndex(log, "packets"), 0):], " ")
	n, err := strconv.Atoi(strings.TrimSpace(last))
	require.True(r.t, err == nil, "the receiver reported no packets: %s", log)
	return n
}

// attackFrom starts a session that tries all targets all the time, and waits until it has.
func (r *packetReceiver) attackFrom(ns string) *sessionTest {
	r.t.Helper()
	runner := createRunnerIn(r.t, ns, "hostile-", func(spec *v1alpha1.SessionRunnerSpec) {
		spec.Image, testbuilder.RunnerContainer(spec).Command = probeImage, append([]string{"/egressprobe", "attack"}, r.targets...)
	})
	s := createSessionIn(r.t, ns, "hostile-", runner, "attack", nil)
	s.waitForPhase(v1alpha1.SessionRunning)
	s.waitForLogLine("round 3")
	return s
}

func (r *packetReceiver) wantNothing() {
	r.t.Helper()
	after := r.packets()
	require.True(r.t, after == r.before, "the receiver got %d packets", after-r.before)
}

// waitForAttacks waits until the session has tried everything at least twice more.
func (s *sessionTest) waitForAttacks() {
	s.t.Helper()
	pod := s.currentPod()
	rounds := func() int {
		log := readLog(s.t, pod.Namespace, pod.Name, v1alpha1.RunnerContainer)
		require.True(s.t, !strings.Contains(log, "reached"), "session %s reached a target: %s", s.s.Name, log)
		return strings.Count(log, "round ")
	}
	before := rounds()
	poll.Until(s.t, "the session to attack", func() bool { return rounds() >= before+2 })
}

func (s *sessionTest) deletePolicy() {
	s.t.Helper()
	require.NoError(s.t, cluster.Delete(s.t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.s.Namespace, Name: agenticsession.NetworkPolicyName(s.s.Name)},
	}))
}

func testHostileSessions(t *testing.T) {
	receiver := createPacketReceiver(t)
	running, stopped, deleted := receiver.attackFrom(sessionsNamespace), receiver.attackFrom(sessionsNamespace), receiver.attackFrom(sessionsNamespace)
	ending := []*corev1.Pod{stopped.currentPod(), deleted.currentPod()}

	running.deletePolicy()
	stopped.patchSpec(`{"suspend": true}`)
	deleted.deleteSession()
	running.waitForAttacks()
	for _, pod := range ending {
		waitUntilDeleted(t, pod)
	}
	running.waitForAttacks()
	receiver.wantNothing()
}

func testHostileSessionsWithoutOperator(t *testing.T) {
	receiver := createPacketReceiver(t)
	running, deleted := receiver.attackFrom(sessionsNamespace), receiver.attackFrom(sessionsNamespace)
	pod := deleted.currentPod()
	scaleOperatorToZero(t)
	running.deletePolicy()
	deleted.deleteSession()
	running.waitForAttacks()
	waitUntilDeleted(t, pod)
	poll.Until(t, "the other objects of the session to be deleted", func() bool {
		return len(countChildObjects(t, sessionsNamespace)[deleted.s.UID]) == 0
	})
	running.waitForAttacks()
	receiver.wantNothing()
}

// Since Kubernetes 1.33, the Pods of a namespace are deleted before its NetworkPolicies. While the namespace is missing, no other test
// may deploy the operator, which has Roles there. The operator that runs continues without them.
func testHostileSessionInDeletedNamespace(t *testing.T) {
	receiver := createPacketReceiver(t)
	pod := receiver.attackFrom(hostileNamespace).currentPod()
	deployments.Lock()
	defer deployments.Unlock()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostileNamespace}}
	require.NoError(t, cluster.Delete(t.Context(), ns))
	waitUntilDeleted(t, pod)
	receiver.wantNothing()
	waitUntilDeleted(t, ns)
	require.NoError(t, createNamespace(t.Context(), hostileNamespace))
}
