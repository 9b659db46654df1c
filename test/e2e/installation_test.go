//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/ca"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func testOperatorIsRestricted(t *testing.T) {
	ns := get(t, &corev1.Namespace{}, client.ObjectKey{Name: operatorNamespace})
	require.Equal(t, "restricted", ns.Labels["pod-security.kubernetes.io/enforce"])
	pod := leaderPod(t)
	require.True(t, pod.Status.Phase == corev1.PodRunning, "the Pod is %s", pod.Status.Phase)
}

func testMetricsRequireAuthorization(t *testing.T) {
	looked := createSequence(t, testbuilder.SequentialJob("measured", "").Step("a", shellScript("true")).Obj())
	looked.waitForPhase(v1alpha1.PhaseCompleted)

	reader := serviceAccountToken(t, unwatchedNamespace, "metrics-reader")
	createUntilEnd(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "yardmaster-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: unwatchedNamespace, Name: "metrics-reader"}},
	})
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, serviceAccountToken(t, unwatchedNamespace, "no-permissions"): http.StatusForbidden,
	} {
		code, _ := scrapeMetrics(t, token)
		require.Equal(t, want, code)
	}
	code, page := 0, ""
	poll.Until(t, "the metrics reader to be authorized", func() bool {
		code, page = scrapeMetrics(t, reader)
		return code == http.StatusOK
	})
	for _, name := range []string{
		"yardmaster_sequentialjob_step_transition_seconds_count", `yardmaster_sequentialjob_steps_total{result="succeeded"}`,
		"yardmaster_sequentialjob_active", "yardmaster_sequentialjob_conflicts_total",
	} {
		require.True(t, strings.Contains(page, "\n"+name+" "), "metric %s is missing", name)
	}
	require.True(t, !strings.Contains(page, looked.sj.Name), "the metrics contain the name of an object")
}

func serviceAccountToken(t *testing.T, ns, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), account)))
	request := &authenticationv1.TokenRequest{}
	require.NoError(t, cluster.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

var forwardingLine = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+)`)

// forwardPort forwards a local port to a Service or Pod, and returns its address. It serves one connection: kubectl
// ends with the first one that a peer resets.
func forwardPort(t *testing.T, target, port string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	command := newKubectlCommand(ctx, "port-forward", "--namespace", operatorNamespace, target, ":"+port)
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	stop = func() {
		cancel()
		_ = command.Wait()
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if match := forwardingLine.FindStringSubmatch(lines.Text()); match != nil {
			return match[1], stop
		}
	}
	stop()
	t.Fatalf("kubectl port-forward ended: %v", lines.Err())
	return "", nil
}

// scrapeMetrics reads the metrics of the leader: the other replica counts no steps.
func scrapeMetrics(t *testing.T, token string) (code int, page string) {
	t.Helper()
	address, stop := forwardPort(t, "pod/"+leaderPod(t).Name, "8443")
	defer stop()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is self-signed and created at each start.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// The operator needs patch only to remove finalizers. RBAC cannot express that; a ValidatingAdmissionPolicy denies changes of the spec.
func testOperatorCannotChangeSpecs(t *testing.T) {
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: serviceAccount, Groups: permissions.Groups(serviceAccount)}
	asOperator, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	s := createSequenceIn(t, unwatchedNamespace, testbuilder.SequentialJob("immutable", "").Step("a", shellScript("true")).Obj())
	patch := func(text string) error {
		return asOperator.Patch(t.Context(), s.readSequence().DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	err = patch(`{"spec":{"suspend":true}}`)
	require.True(t, apierrors.IsInvalid(err) && strings.Contains(err.Error(), "may not change a spec"), "a change of the spec: %v", err)
	require.NoError(t, patch(`{"metadata":{"finalizers":["`+v1alpha1.SequentialJobFinalizer+`"]}}`))
	require.NoError(t, patch(`{"metadata":{"finalizers":null}}`))
}

// operatorPermissions returns the operator's permissions in a namespace, except those of every user.
func operatorPermissions(t *testing.T, namespace string) []string {
	t.Helper()
	granted, err := permissions.OfServiceAccount(t.Context(), config, serviceAccount, namespace)
	require.NoError(t, err)
	return granted
}

// grantRole gives the ServiceAccount of this name a Role of the same name.
func grantRole(t *testing.T, ns, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: ns}},
	}
	for _, object := range []client.Object{role, binding} {
		require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), object)))
	}
}

func testComponents(t *testing.T) {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: operatorName}}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: operatorName}}
	network := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "yardmaster-webhook", Namespace: operatorNamespace}}
	redeploy := func(ctx context.Context, variables ...string) error {
		return errors.Join(deployOperator(ctx, exclusiveNamespaces, variables...), waitForOperator(ctx))
	}
	t.Cleanup(func() { require.NoError(t, redeploy(context.Background())) })
	// Otherwise what is refused later proves nothing.
	require.True(t, canConnect(t, nil, podAddress(leaderPod(t), 9443)), "without the component, another Pod cannot connect to the webhook")

	require.NoError(t, redeploy(t.Context(), "COMPONENTS=admission-policy,webhook-network-policy"))
	require.True(t, !objectExists(t, mutating) && objectExists(t, policy), "the MutatingAdmissionPolicy does not replace the webhook")
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(network), network))
	network.Spec.Ingress[0].From[0].IPBlock.CIDR = apiServerEgress(t)[1].To.IPBlock.CIDR
	require.NoError(t, cluster.Update(t.Context(), network))
	require.NoError(t, webhookServes(t.Context()))
	require.True(t, !canConnect(t, nil, podAddress(leaderPod(t), 9443)), "another Pod can connect to the webhook")
	require.True(t, canConnect(t, nil, podAddress(leaderPod(t), 8443)), "another Pod cannot connect to the metrics")
	wantCreatorRecorded(t)
	t.Run("the webhook accepts only an API server with a client certificate, if one is required", testWebhookClientCertificate)

	require.NoError(t, redeploy(t.Context()))
	require.True(t, objectExists(t, mutating) && !objectExists(t, policy) && !objectExists(t, network),
		"the components remain although they are no longer deployed")
	wantCreatorRecorded(t)
}

func testWebhookClientCertificate(t *testing.T) {
	// The API server has no certificate for what it forwards.
	forward := func() string {
		path := fmt.Sprintf("/api/v1/namespaces/%s/services/https:yardmaster-webhook:443/proxy/", operatorNamespace)
		output, _ := newKubectlCommand(t.Context(), "get", "--raw", path).CombinedOutput()
		return string(output)
	}
	output := forward()
	require.True(t, strings.Contains(output, "NotFound"), "without the requirement, a request without a certificate gets %s", output)
	patch := `{"spec": {"template": {"spec": {"containers": [{"name": "yardmaster", "env": [
		{"name": "YARDMASTER_WEBHOOK_CLIENT_CA_FILE", "value": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}]}]}}}}`
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: operatorName, Namespace: operatorNamespace}}
	require.NoError(t, cluster.Patch(t.Context(), deployment, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	require.NoError(t, waitForOperator(t.Context())) // the API server can call the webhook
	if output := forward(); !strings.Contains(output, "tls: certificate required") {
		t.Errorf("a request without a certificate gets %s", output)
	}
}

func wantCreatorRecorded(t *testing.T) {
	t.Helper()
	poll.Until(t, "the creator of a session to be recorded", func() bool {
		s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "claimed", Namespace: sessionsNamespace}}
		s.Spec.Runner, s.Spec.Prompt, s.Spec.UserContext = echoRunner, "none", &v1alpha1.UserContext{UserID: "forged"}
		err := cluster.Create(t.Context(), s, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "webhook") {
			return false // the API server has not observed the new configuration yet
		}
		require.NoError(t, err)
		return s.Spec.UserContext.UserID != "forged"
	})
}

// Each controller is deployed alone after the others, so this also tests that `make deploy` removes the permissions of the controller before it.
func testSingleControllers(t *testing.T) {
	page, err := permissions.ReadPage(filepath.Join(repositoryRoot, "docs", "reference", "permissions.md"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(deployOperator(context.Background(), watchedNamespaces), waitForOperator(context.Background())))
	})
	for controller, work := range map[string]func(*testing.T){
		"sequentialjob": workOfSequentialJobs, "queue": workOfQueues, "policy": workOfPolicies,
		"workerpool": workOfWorkerPools, "agenticsession": workOfAgenticSessions, "egressproxy": workOfEgressProxies,
		"schedule": reportOfSchedules,
	} {
		t.Run(controller, func(t *testing.T) {
			require.NoError(t, deployOperator(t.Context(), watchedNamespaces, "CONTROLLERS="+controller))
			require.NoError(t, waitForOperator(t.Context()))
			want := permissions.Union(
				page.Columns(permissions.WatchedNamespaces, controller),
				page.Columns(permissions.AllNamespaces, "metrics", "admission policies", "identity", "API server", controller),
			)
			var granted []string
			poll.Until(t, "the permissions of other controllers to be removed", func() bool {
				granted = operatorPermissions(t, tenantNamespace)
				return len(granted) <= len(want)
			})
			require.Equal(t, want, granted)
			work(t)
			for line := range strings.Lines(readLog(t, operatorNamespace, leaderPod(t).Name, "")) {
				require.True(t, !strings.Contains(line, "forbidden"), "a permission is missing: %s", line)
			}
		})
	}
}

func workOfSequentialJobs(t *testing.T) {
	createSequenceIn(t, tenantNamespace, testbuilder.SequentialJob("alone", "").Step("a", shellScript("true")).Obj()).waitForPhase(v1alpha1.PhaseCompleted)
}

// reportOfSchedules checks what a Schedule reports without the controller of its runs.
func reportOfSchedules(t *testing.T) {
	s := &v1alpha1.Schedule{ObjectMeta: tenantMeta("alone")}
	s.Spec.Schedule = "0 2 * * *"
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers": [{"name": "a", "image": "a:1"}]}`)}}
	createAndWait(t, s, func() []metav1.Condition { return s.Status.Conditions }, v1alpha1.ReasonKindDisabled)
}

func workOfAgenticSessions(t *testing.T) {
	s := createSessionIn(t, tenantNamespace, "alone", interactiveRunner, "", func(spec *v1alpha1.AgenticSessionSpec) {
		spec.Interactive = true
		setPersistentWorkspace(spec)
	})
	s.waitForPhase(v1alpha1.SessionRunning)
}

func workOfEgressProxies(t *testing.T) {
	r := &v1alpha1.SessionRunner{ObjectMeta: tenantMeta("hosts")}
	r.Spec.Image, r.Spec.Network.Egress = busyboxImage, []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	createUntilEnd(t, r)
	poll.Until(t, "the proxy to run", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(r), r))
		return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionEgressProxyReady)
	})
}

func workOfQueues(t *testing.T) {
	q := &v1alpha1.Queue{ObjectMeta: tenantMeta("alone")}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "missing"
	createAndWait(t, q, func() []metav1.Condition { return q.Status.Conditions }, v1alpha1.ReasonSecretNotFound)
}

func workOfPolicies(t *testing.T) {
	p := &v1alpha1.Policy{ObjectMeta: tenantMeta("alone")}
	p.Spec.Defaults = &v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}}}
	p.Spec.Defaults.Broker.URLSecretRef.Name = "missing"
	createAndWait(t, p, func() []metav1.Condition { return p.Status.Conditions }, v1alpha1.ReasonSecretNotFound)
}

func createAndWait(t *testing.T, object client.Object, conditions func() []metav1.Condition, reason string) {
	t.Helper()
	createUntilEnd(t, object)
	poll.Until(t, object.GetName()+" to be reconciled", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		ready := meta.FindStatusCondition(conditions(), v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == reason
	})
}

func workOfWorkerPools(t *testing.T) {
	wp := &v1alpha1.WorkerPool{ObjectMeta: tenantMeta("alone")}
	wp.Spec.Image, wp.Spec.Autoscaling = busyboxImage, &v1alpha1.Autoscaling{MinReplicas: 1, MaxReplicas: 1}
	wp.Spec.Source = &v1alpha1.Source{External: &v1alpha1.ExternalSource{Address: "192.0.2.1:1"}}
	createUntilEnd(t, wp)
	poll.Until(t, "the pool's Deployment", func() bool {
		var list appsv1.DeploymentList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(tenantNamespace)))
		return slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool { return metav1.IsControlledBy(&d, wp) })
	})
}

// Names of the operator's own objects.
const (
	operatorNamespace = "yardmaster-system"
	operatorName      = "yardmaster"
	leaseName         = "yardmaster.yardmaster.dev"
	serviceAccount    = "system:serviceaccount:" + operatorNamespace + ":" + operatorName
)

var operatorKey = client.ObjectKey{Namespace: operatorNamespace, Name: operatorName}

// waitForOperator waits until only Pods of the deployed version exist, one of them leads, and the API server can call the webhook.
func waitForOperator(ctx context.Context) error {
	return poll.UntilNil(ctx, func() error { return operatorReady(ctx) })
}

func operatorReady(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	if err := cluster.Get(ctx, operatorKey, deployment); err != nil {
		return err
	}
	status, wanted := deployment.Status, *deployment.Spec.Replicas
	if status.ObservedGeneration != deployment.Generation || status.UpdatedReplicas != wanted || status.AvailableReplicas != wanted {
		return fmt.Errorf("not rolled out: %d updated, %d available of %d", status.UpdatedReplicas, status.AvailableReplicas, wanted)
	}
	pods, err := operatorPods(ctx)
	if err != nil {
		return err
	}
	if len(pods) != int(wanted) {
		return fmt.Errorf("%d Pods, not %d", len(pods), wanted)
	}
	lease, err := readLease(ctx)
	if err != nil {
		return err
	}
	if leaderAmong(pods, lease) == nil {
		return fmt.Errorf("the Lease is held by %q, but no Pod has that name", leaseHolder(lease))
	}
	return webhookServes(ctx)
}

func operatorPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := cluster.List(ctx, &pods, client.InNamespace(operatorNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": operatorName, "app.kubernetes.io/component": "operator"})
	return pods.Items, err
}

func readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: leaseName}, lease)
}

// leaseHolder returns the identity of the Lease's holder: a Pod's name and an ID of its process.
func leaseHolder(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

func leaderAmong(pods []corev1.Pod, lease *coordinationv1.Lease) *corev1.Pod {
	for i := range pods {
		if strings.HasPrefix(leaseHolder(lease), pods[i].Name+"_") {
			return &pods[i]
		}
	}
	return nil
}

// webhookServes creates a Policy in a dry run, which the API server refuses if it cannot call the webhook.
func webhookServes(ctx context.Context) error {
	return cluster.Create(ctx, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: watchedNamespace, Name: "dry-run"}}, client.DryRunAll)
}

func currentLease(t *testing.T) *coordinationv1.Lease {
	return get(t, &coordinationv1.Lease{}, client.ObjectKey{Namespace: operatorNamespace, Name: leaseName})
}

func leaderPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pods, err := operatorPods(t.Context())
	require.NoError(t, err)
	pod := leaderAmong(pods, currentLease(t))
	require.True(t, pod != nil, "the Lease is held by %q, but no Pod has that name", leaseHolder(currentLease(t)))
	return pod
}

func waitForAnotherLeader(t *testing.T, than string) {
	t.Helper()
	poll.Until(t, "another leader", func() bool {
		now := leaseHolder(currentLease(t))
		return now != "" && now != than
	})
}

func operatorDeployment(t *testing.T) *appsv1.Deployment {
	return get(t, &appsv1.Deployment{}, operatorKey)
}

// sendSignal sends a signal to the process of this name in a Pod's first container. A privileged Pod sends it, because the operator's image has no
// shell, and a process cannot kill the first process of its own container.
func sendSignal(t *testing.T, pod *corev1.Pod, process, sig string) {
	t.Helper()
	_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	require.True(t, container != "", "the container of Pod %s does not run", pod.Name)
	command := fmt.Sprintf(`
for i in $(seq 50); do
	for p in /proc/[0-9]*; do
		grep -qs %s $p/cgroup && [ "$(cat $p/comm)" = %s ] && kill -%s ${p#/proc/} && exit 0
	done
	sleep 0.1 # a running container may not have started the process yet
done
exit 1`, container, process, sig)
	sender := newPrivilegedPod("signal-", command)
	require.NoError(t, cluster.Create(t.Context(), sender))
	defer func() { require.NoError(t, cluster.Delete(t.Context(), sender)) }()
	poll.Until(t, "the signal to be sent", func() bool {
		return objectExists(t, sender) && (sender.Status.Phase == corev1.PodSucceeded || sender.Status.Phase == corev1.PodFailed)
	})
	require.True(t, sender.Status.Phase == corev1.PodSucceeded, "Pod %[2]s has no process %[1]s", process, pod.Name)
}

// newPrivilegedPod returns a Pod whose script sees the processes of the node.
func newPrivilegedPod(name, script string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: privilegedNamespace}}
	pod.Spec = corev1.PodSpec{HostPID: true, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1))}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: busyboxImage, Command: []string{"sh", "-c", script}}}
	return pod
}

func newShortSequence(name string, n int) *v1alpha1.SequentialJob {
	b := testbuilder.SequentialJob(name, "")
	for i := n; i > 0; i-- {
		b = b.Step(fmt.Sprintf("t-%d", i), shellScript("sleep 0.2"))
	}
	return b.Obj()
}

func roundedSince(start time.Time) time.Duration {
	return time.Since(start).Round(100 * time.Millisecond)
}

var buildPlugin sync.Once

func newPluginCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	buildPlugin.Do(func() { require.NoError(t, runInRepository(t.Context(), "make", "plugin")) })
	command := exec.CommandContext(t.Context(), filepath.Join(repositoryRoot, "bin", "kubectl-yardmaster"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv("KUBECONFIG"))
	return command
}

func runPluginBinary(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	var stderr bytes.Buffer
	command := newPluginCommand(t, args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	if stderr.Len() > 0 {
		t.Logf("%s: %s", command, stderr.String())
	}
	return string(out), code
}

func testPluginFollowsLogs(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("followed", "").
		Step("one", shellScript("for i in 1 2 3; do echo line $i; sleep 1; done")).
		Step("two", shellScript("echo at once")).Step("three", shellScript("echo failing; exit 3")).Obj())
	// The command starts before the first Pod exists.
	output, code := runPluginBinary(t, "seq", "logs", "-f", "-n", watchedNamespace, s.sj.Name)
	want := "one | line 1\none | line 2\none | line 3\ntwo | at once\nthree | failing\n"
	require.Equal(t, want, output)
	require.Equal(t, 0, code)
	again, _ := runPluginBinary(t, "seq", "logs", "-n", watchedNamespace, s.sj.Name, "--step", "two")
	require.Equal(t, "two | at once\n", again)
}

func testCertificateAuthorityIsRenewed(t *testing.T) {
	before := leaderPod(t)
	calls := callWebhook(t)
	replaced := authoritySecret(t).Data[ca.CertFile]
	mustRunPlugin(t, "webhook-ca", "--renew")
	renewed := authoritySecret(t).Data[ca.CertFile]
	pods, err := operatorPods(t.Context())
	require.NoError(t, err)
	for i := range pods {
		// A kubelet updates the Secrets of a Pod every minute, and whenever the Pod changes.
		require.NoError(t, cluster.Patch(t.Context(), pods[i].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"e2e":"renewed"}}}`))))
	}
	start := time.Now()
	for i := range pods {
		poll.Until(t, "a certificate of the new authority to be served", func() bool { return servesCertificateOf(t, "pod/"+pods[i].Name, "9443", renewed) })
	}
	t.Logf("all replicas served a certificate of the new authority after %v", roundedSince(start))
	mustRunPlugin(t, "webhook-ca")
	webhooks := get(t, &admissionregistrationv1.ValidatingWebhookConfiguration{}, client.ObjectKey{Name: operatorName}).Webhooks
	trusted := webhooks[0].ClientConfig.CABundle
	require.True(t, !bytes.Equal(renewed, replaced) && bytes.Equal(trusted, renewed), "the API server does not trust only the new authority")
	require.NoError(t, webhookServes(t.Context()))
	for _, err := range calls.stopCalling() {
		t.Errorf("a request failed: %v", err)
	}
	after := leaderPod(t)
	require.True(t, after.UID == before.UID && after.Status.ContainerStatuses[0].RestartCount == before.Status.ContainerStatuses[0].RestartCount,
		"the operator was restarted")
}

func authoritySecret(t *testing.T) *corev1.Secret {
	t.Helper()
	return get(t, &corev1.Secret{}, client.ObjectKey{Namespace: operatorNamespace, Name: "yardmaster-webhook-ca"})
}

func mustRunPlugin(t *testing.T, args ...string) {
	t.Helper()
	output, code := runPluginBinary(t, args...)
	require.True(t, code == 0, "kubectl yardmaster %v: exit code %d: %s", args, code, output)
}

// servesCertificateOf reports whether the certificate of the webhooks at a port is signed by this CA.
func servesCertificateOf(t *testing.T, target, port string, authority []byte) bool {
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority), "the CA is not a certificate")
	address, stop := forwardPort(t, target, port)
	defer stop()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "yardmaster-webhook." + operatorNamespace + ".svc"}}
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func testRollingRestart(t *testing.T) {
	s := createSequence(t, newShortSequence("restarted", 8))
	calls := callWebhook(t)
	before := currentLease(t)

	restarted := operatorDeployment(t)
	original := restarted.DeepCopy()
	restarted.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339)
	require.NoError(t, cluster.Patch(t.Context(), restarted, client.MergeFrom(original)))
	require.NoError(t, waitForOperator(t.Context()))
	after := currentLease(t)
	require.True(t, leaseHolder(after) != leaseHolder(before), "the leader did not change")
	for _, err := range calls.stopCalling() {
		t.Errorf("a request failed: %v", err)
	}
	calls.recordLease(after)
	// A leader stops up to 2 s after its last renewal, and another replica tries to acquire the Lease up to 2.2 times 2 s later. A Lease that is not
	// released expires after 15 s. The next leader may be a replica that is restarted later.
	limit, leaderless := 10*time.Second, time.Duration(0)
	for i := 1; i < len(calls.terms); i++ {
		leaderless = max(leaderless, calls.terms[i].acquired.Sub(calls.terms[i-1].lastRenewal))
	}
	require.True(t, leaderless <= limit, "no replica led for %v, want at most %v", leaderless, limit)
	t.Logf("%d replicas led, the next at most %v after the last renewal by the previous one", len(calls.terms), leaderless.Round(100*time.Millisecond))

	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
}

// webhookCaller calls the webhook repeatedly, and records the renewals of the Lease.
type webhookCaller struct {
	stop  func()
	errs  []error
	terms []leaseTerm
}

type leaseTerm struct {
	holder                string
	acquired, lastRenewal time.Time
}

func callWebhook(t *testing.T) *webhookCaller {
	c := &webhookCaller{}
	c.stop = background.Run(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			c.callOnce(ctx)
		}
		return nil
	})
	return c
}

func (c *webhookCaller) callOnce(ctx context.Context) {
	if err := webhookServes(ctx); err != nil && ctx.Err() == nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
	}
	if lease, err := readLease(ctx); err == nil {
		c.recordLease(lease)
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func (c *webhookCaller) recordLease(lease *coordinationv1.Lease) {
	holder := leaseHolder(lease)
	if holder == "" {
		return
	}
	if n := len(c.terms); n == 0 || c.terms[n-1].holder != holder {
		c.terms = append(c.terms, leaseTerm{holder: holder, acquired: lease.Spec.AcquireTime.Time})
	}
	c.terms[len(c.terms)-1].lastRenewal = lease.Spec.RenewTime.Time
}

func (c *webhookCaller) stopCalling() []error {
	c.stop()
	return c.errs
}

func testFailover(t *testing.T) {
	var sequences []*sequenceTest
	for range 4 {
		sequences = append(sequences, createSequence(t, newShortSequence("fail-over", 10)))
	}
	sequences[0].waitForRunningPod("t-9")

	hung := leaderPod(t)
	restarts := hung.Status.ContainerStatuses[0].RestartCount
	before := leaseHolder(currentLease(t))
	start := time.Now()
	sendSignal(t, hung, operatorName, "STOP")
	waitForAnotherLeader(t, before)
	t.Logf("another replica led %v after the leader hung", roundedSince(start))
	require.True(t, leaderPod(t).UID != hung.UID, "the hung Pod leads again")
	// The resumed process assumes that it still leads, and exits when it detects that it does not.
	sendSignal(t, hung, operatorName, "CONT")
	poll.Until(t, "the old leader to restart", func() bool { return objectExists(t, hung) && hung.Status.ContainerStatuses[0].RestartCount > restarts })

	// The kubelet restarts a killed process at once, so it can become the leader again.
	before = leaseHolder(currentLease(t))
	start = time.Now()
	sendSignal(t, leaderPod(t), operatorName, "KILL")
	waitForAnotherLeader(t, before)
	t.Logf("another replica led %v after the leader was killed", roundedSince(start))
	runs := func(s *sequenceTest) bool { return s.readSequence().Status.CompletionTime == nil }
	require.True(t, slices.ContainsFunc(sequences, runs), "the sequences ended before the failover: this test needs longer ones")
	for _, s := range sequences {
		s.waitForPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

// scaleOperatorToZero stops the operator for the rest of the test.
func scaleOperatorToZero(t *testing.T) {
	t.Helper()
	before := operatorDeployment(t)
	none := before.DeepCopy()
	none.Spec.Replicas = new(int32(0))
	require.NoError(t, cluster.Patch(t.Context(), none, client.MergeFrom(before)))
	t.Cleanup(func() {
		ctx := context.Background()
		replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, *before.Spec.Replicas)
		require.NoError(t, cluster.Patch(ctx, before, client.RawPatch(types.MergePatchType, replicas)))
		require.NoError(t, waitForOperator(ctx))
	})
	poll.Until(t, "the operator's Pods to be deleted", func() bool {
		pods, err := operatorPods(t.Context())
		require.NoError(t, err)
		return len(pods) == 0
	})
}

// The objects of a namespace are deleted in no defined order. This test enforces the worst one:
// the operator's permissions are deleted before all objects with its finalizers.
func testNamespaceIsDeleted(t *testing.T) {
	o := newQueueEnv(t, terminatingNamespace)
	o.createQueue("purged", func(q *v1alpha1.Queue) { q.Spec.DeletionPolicy = v1alpha1.DeletionPurge })
	o.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 2) })
	o.waitUntilWorkers(2)
	o.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 100, rate: 100, takes: time.Second})
	o.waitUntilInFlight(4)
	s := createSequenceIn(t, terminatingNamespace, testbuilder.SequentialJob("running", "").Step("a", shellScript("trap exit TERM; sleep 3600 & wait")).Obj())
	s.waitForRunningPod("a")

	o.runKubectl("delete", "rolebindings", "--selector", "yardmaster.dev/deployment")
	poll.Until(t, "the operator to have lost its permissions", func() bool {
		return !slices.Contains(operatorPermissions(t, terminatingNamespace), "patch pods")
	})
	o.runKubectl("delete", "workerpools,queues", "--all", "--wait=false")
	s.deleteSequence()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: terminatingNamespace}}
	for _, object := range []client.Object{s.sj, o.getPool()} {
		require.True(t, objectExists(t, object) && len(object.GetFinalizers()) != 0,
			"%s lost its finalizer although its namespace is not terminating", object.GetName())
	}
	start := time.Now()
	require.NoError(t, cluster.Delete(t.Context(), ns))
	waitUntilDeleted(t, ns)
	t.Logf("the namespace was deleted after %v", roundedSince(start))

	// A restarted operator works without the namespace, and in it when the namespace and its Roles exist again.
	o.runKubectl("-n", operatorNamespace, "rollout", "restart", "deployment/"+operatorName)
	require.NoError(t, waitForOperator(t.Context()))
	created := testbuilder.SequentialJob("after-restart", "").Step("a", shellScript("true"))
	createSequence(t, created.Obj()).waitForPhase(v1alpha1.PhaseCompleted)
	require.NoError(t, createNamespace(t.Context(), terminatingNamespace))
	require.NoError(t, deployOperator(t.Context(), exclusiveNamespaces))
	createSequenceIn(t, terminatingNamespace, created.Obj()).waitForPhase(v1alpha1.PhaseCompleted)
	require.NoError(t, waitForOperator(t.Context()))
}

// secretValue is the content of a Secret in the tenants' namespace, which no tenant may read.
const (
	secretName  = "confidential"
	secretValue = "confidential-value"
)

// tenant is a user with one permission in one namespace.
type tenant struct {
	t      *testing.T
	client client.Client
}

// newTenant returns a user whose only permission is to create objects of one resource, as in
// "sequentialjobs.yardmaster.dev", in the tenants' namespace.
func newTenant(t *testing.T, resource string) *tenant {
	t.Helper()
	name, group, _ := strings.Cut(resource, ".")
	account := "system:serviceaccount:" + tenantNamespace + ":" + name + "-creator"
	grantRole(t, tenantNamespace, name+"-creator", rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{name}, Verbs: []string{"create"}})
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), confidentialSecret())))
	poll.Until(t, "the user to have exactly one permission", func() bool {
		granted, err := permissions.OfServiceAccount(t.Context(), config, account, tenantNamespace)
		require.NoError(t, err)
		return slices.Equal(granted, []string{"create " + resource})
	})
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: permissions.Groups(account)}
	c, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	return &tenant{t, c}
}

func confidentialSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName, Namespace: tenantNamespace},
		StringData: map[string]string{"url": secretValue},
	}
}

func tenantMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: tenantNamespace}
}

// create creates an object as the tenant, and checks that the tenant cannot create it elsewhere, nor read the Secret.
func (u *tenant) create(object client.Object) {
	u.t.Helper()
	elsewhere, _ := object.DeepCopyObject().(client.Object)
	elsewhere.SetNamespace(watchedNamespace)
	err := u.client.Create(u.t.Context(), elsewhere)
	require.True(u.t, apierrors.IsForbidden(err), "creating it in another namespace: %v, want Forbidden", err)
	err = u.client.Get(u.t.Context(), client.ObjectKeyFromObject(confidentialSecret()), &corev1.Secret{})
	require.True(u.t, apierrors.IsForbidden(err), "reading a Secret: %v, want Forbidden", err)
	require.NoError(u.t, u.client.Create(u.t.Context(), object))
	deleteAtEnd(u.t, object)
}

// secretAsVariable makes a container read the Secret, as its author may: Kubernetes does not check
// whether the author of a Pod may read the Secrets that it names.
func secretAsVariable() corev1.EnvVar {
	return corev1.EnvVar{Name: "STOLEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secretName}, Key: "url",
	}}}
}

// newSecretReader returns a sequence whose step fails with the content of the Secret in its message.
func newSecretReader() *v1alpha1.SequentialJob {
	return prepareSequence(tenantNamespace, testbuilder.SequentialJob("reader", "").
		Step("read", shellScript(`echo "$STOLEN" > /dev/termination-log; exit 1`), testbuilder.ChangeContainer(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{secretAsVariable()}
		})).Obj())
}

func testSequentialJobPermission(t *testing.T) {
	u := newTenant(t, "sequentialjobs.yardmaster.dev")
	s := &sequenceTest{t: t, sj: newSecretReader()}
	u.create(s.sj)
	s.waitForPhase(v1alpha1.PhaseFailed)
	message := s.stepStatus("read").Message
	require.True(t, strings.Contains(message, secretValue), "the step could not read the Secret: %q", message)
}

// A Schedule runs sequences in the name of the operator, which has the permissions of an installation.
func testSchedulePermission(t *testing.T) {
	u := newTenant(t, "schedules.yardmaster.dev")
	spec, err := json.Marshal(newSecretReader().Spec)
	require.NoError(t, err)
	s := &v1alpha1.Schedule{ObjectMeta: tenantMeta("reader")}
	s.Spec.Schedule, s.Spec.ConcurrencyPolicy = "* * * * *", v1alpha1.ConcurrencyForbid
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: spec}}
	u.create(s)
	var runs v1alpha1.SequentialJobList
	poll.Until(t, "a run to end", func() bool {
		require.NoError(t, cluster.List(t.Context(), &runs, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}))
		return len(runs.Items) > 0 && runs.Items[0].Status.CompletionTime != nil
	})
	message := runs.Items[0].Status.Steps[0].Message
	require.True(t, strings.Contains(message, secretValue), "the step could not read the Secret: %q", message)
}

func testQueuePermission(t *testing.T) {
	env := newQueueEnv(t, tenantNamespace) // NATS, and the Secret broker
	u := newTenant(t, "queues.yardmaster.dev")
	granted := &v1alpha1.Queue{ObjectMeta: tenantMeta("granted")}
	granted.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	granted.Spec.Broker.URLSecretRef.Name = "broker"
	u.create(granted)
	env.waitUntilQueueReady("granted")
}

func testWorkerPoolPermission(t *testing.T) {
	env := newQueueEnv(t, tenantNamespace)
	u := newTenant(t, "workerpools.yardmaster.dev")
	wp := &v1alpha1.WorkerPool{ObjectMeta: tenantMeta("reader")}
	setFixedReplicas(wp, 1, 1)
	wp.Spec.Image, wp.Spec.Queues = busyboxImage, []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "orders"}}}
	wp.Spec.Drain = &v1alpha1.Drain{TerminationGrace: v1alpha1.NewDuration(time.Second)} // the shell ignores SIGTERM
	wp.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532))},
		Containers: []corev1.Container{{
			Name: v1alpha1.WorkerContainer, Image: busyboxImage, Command: []string{"sh", "-c", `echo "read $STOLEN"; sleep 3600`}, Env: []corev1.EnvVar{secretAsVariable()},
		}},
	}}
	u.create(wp)
	poll.Until(env.t, "a worker to have read the Secret", func() bool {
		pods := podsWith(t, tenantNamespace, map[string]string{"yardmaster.dev/workerpool": "reader"})
		for i := range pods {
			logs, err := clientset.CoreV1().Pods(tenantNamespace).GetLogs(pods[i].Name, &corev1.PodLogOptions{Container: v1alpha1.WorkerContainer}).DoRaw(t.Context())
			if err == nil && strings.Contains(string(logs), "read "+secretValue) {
				return true
			}
		}
		return false
	})
}

func testPolicyPermission(t *testing.T) {
	u := newTenant(t, "policies.yardmaster.dev")
	selected := map[string]string{"team": "limited"}
	p := &v1alpha1.Policy{ObjectMeta: tenantMeta("limit")}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: selected}
	p.Spec.Limits = &v1alpha1.PolicyLimits{AllowedImages: []string{"registry.invalid/*"}}
	u.create(p)
	wp := &v1alpha1.WorkerPool{ObjectMeta: tenantMeta("limited")}
	wp.Labels, wp.Spec.Image, wp.Spec.Queues = selected, busyboxImage, []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "none"}}}
	setFixedReplicas(wp, 0, 1)
	createUntilEnd(t, wp)
	poll.Until(t, "the pool to be refused for its image", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(wp), wp))
		ready := meta.FindStatusCondition(wp.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionFalse && strings.Contains(ready.Message, "Policy")
	})
}

func testAgenticSessionPermission(t *testing.T) {
	createRunners(t, tenantNamespace)
	u := newTenant(t, "agenticsessions.yardmaster.dev")
	granted := &v1alpha1.AgenticSession{ObjectMeta: tenantMeta("granted")}
	granted.Spec.Runner, granted.Spec.Prompt = echoRunner, "/write notes done"
	u.create(granted)
	trackSession(t, granted).waitForPhase(v1alpha1.SessionCompleted)
}

func testSessionRunnerPermission(t *testing.T) {
	u := newTenant(t, "sessionrunners.yardmaster.dev")
	runner := &v1alpha1.SessionRunner{ObjectMeta: tenantMeta("wide")}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = busyboxImage, new(int64(65532))
	testbuilder.RunnerContainer(&runner.Spec).Command = []string{"sh", "-c", "id -u > /dev/termination-log; exit 1"}
	u.create(runner)
	if err := u.client.Create(t.Context(), &v1alpha1.AgenticSession{
		ObjectMeta: tenantMeta("none"), Spec: v1alpha1.AgenticSessionSpec{Runner: "wide", Prompt: "none"},
	}); !apierrors.IsForbidden(err) {
		t.Errorf("creating a session: %v, want Forbidden", err)
	}
	// Together with the permission to create sessions it means any image, but never root.
	s := createSessionIn(t, tenantNamespace, "wide", "wide", "none", nil)
	s.waitUntil("to end", func(status *v1alpha1.AgenticSessionStatus) bool { return status.Phase == v1alpha1.SessionFailed })
	require.True(t, len(s.s.Status.Attempts) == 1 && strings.Contains(s.s.Status.Attempts[0].Message, "65532"),
		"the session ran as another user: %+v", s.s.Status.Attempts)
}
