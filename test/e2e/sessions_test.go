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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

// wantColumns checks the output of kubectl get, except the age.
func (s *sessionTest) wantColumns(header, row string) {
	s.t.Helper()
	output, err := newKubectlCommand(s.t.Context(), "get", "as", "-n", s.s.Namespace, s.s.Name).Output()
	require.NoError(s.t, err)
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != header || !strings.HasPrefix(strings.Join(strings.Fields(lines[1]), " "), row+" ") {
		s.t.Errorf("kubectl get shows:\n%s\nwant:\n%s\n%s", output, header, row)
	}
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

// logbookScript writes each start and stop into a file in the workspace. It exits by itself only in
// the second attempt.
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

// accessScript reports, in its first run, what the runner can read. The second run reports the identifier
// that the first one wrote.
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
	if len(parts) != 4 || !slices.Equal(parts[:3], []string{"token ", "MODEL_token=hunter2", "tokens "}) {
		t.Fatalf("the runner reads %q, want one file, one variable, and only the directory with tokens", parts)
	}
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
