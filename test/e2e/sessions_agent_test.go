//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/modelserver"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	forgePassword = "token-of-the-forge"
	agentKey      = "sk-key-of-the-agent"
	providerKey   = "sk-key-of-the-provider"
)

// agentManifest is what a user applies.
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
	pod.Spec = corev1.PodSpec{
		AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
		SecurityContext: restrictedPodSecurityContext(),
		Containers: []corev1.Container{{
			Name: "forge", Image: "agent:v1", Command: []string{"/forge"},
			Env: []corev1.EnvVar{
				{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				{Name: "HOME", Value: "/tmp"},
				{Name: "FORGE_PASSWORD", ValueFrom: a.secretKey("password")},
				{Name: "MODEL_KEY", ValueFrom: a.secretKey("ANTHROPIC_API_KEY")},
				{Name: "MODEL_SCRIPT", Value: string(script)},
			},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
			},
			SecurityContext: restrictedSecurityContext(),
		}},
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: sessionsNamespace}}
	secret.StringData = map[string]string{"password": forgePassword, "AGENT_API_KEY": agentKey, "ANTHROPIC_API_KEY": providerKey}
	createUntilEnd(t, secret)
	createUntilEnd(t, pod)
	poll.Until(t, pod.Name+" to be ready", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return isPodReady(pod)
	})
	info := struct{ CloneURL, Host, CA, ModelURL string }{}
	require.NoError(t, json.Unmarshal([]byte(a.ask(t, "/info")), &info))
	a.ForgeHost, a.CloneURL, a.ModelURL = info.Host, info.CloneURL, info.ModelURL
	a.CA = "    " + strings.ReplaceAll(strings.TrimSpace(info.CA), "\n", "\n    ")
	return a
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// forge returns the name of the Pod with the servers.
func (a *agentTest) forge() string { return a.Name + "-forge" }

func (a *agentTest) secretKey(key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: a.Name}, Key: key}}
}

// ask sends a request to the Pod with the servers.
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

// checkPullRequest checks the result of the session, and searches for its secrets.
func (a *agentTest) checkPullRequest(t *testing.T, cost v1alpha1.Number) {
	t.Helper()
	a.waitForPhase(v1alpha1.SessionCompleted)
	status := &a.s.Status
	if total := status.TotalCostUSD; total == nil || cost != "" && *total != cost {
		t.Errorf("the cost is %v", total)
	}
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
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "scripted-pair", Namespace: sessionsNamespace}}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "agent:v1", new(int64(65532))
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
		if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "You said "+message+"\nfinished") {
			t.Errorf("error %v, output %s", err, output)
		}
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
