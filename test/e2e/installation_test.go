//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The operator's Pod runs only if it satisfies what its namespace enforces.
func testOperatorIsRestricted(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	require.Equal(t, "restricted", ns.Labels["pod-security.kubernetes.io/enforce"])
	if pod := leaderPod(t); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the Pod is %s", pod.Status.Phase)
	}
}

func testMetricsRequireAuthorization(t *testing.T) {
	looked := createSequence(t, testbuilder.SequentialJob("measured", "").Step("a", shellScript("true")).Obj())
	looked.waitForPhase(v1alpha1.PhaseCompleted)

	reader := serviceAccountToken(t, unwatchedNamespace, "metrics-reader")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "yardmaster-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: unwatchedNamespace, Name: "metrics-reader"}},
	}
	require.NoError(t, cluster.Create(t.Context(), binding))
	defer cluster.Delete(t.Context(), binding)

	if code, _ := scrapeMetrics(t, ""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := scrapeMetrics(t, serviceAccountToken(t, unwatchedNamespace, "no-permissions")); code != http.StatusForbidden {
		t.Errorf("with a token without permissions: %d", code)
	}
	var code int
	var page string
	poll.Until(t, "the metrics reader to be authorized", func() bool {
		code, page = scrapeMetrics(t, reader)
		return code == http.StatusOK
	})
	for _, name := range []string{
		"yardmaster_sequentialjob_step_transition_seconds_count",
		`yardmaster_sequentialjob_steps_total{result="succeeded"}`,
		"yardmaster_sequentialjob_active",
		"yardmaster_sequentialjob_conflicts_total",
	} {
		require.True(t, strings.Contains(page, "\n"+name+" "), "metric %s is missing", name)
	}
	require.True(t, !strings.Contains(page, looked.sj.Name), "the metrics contain the name of an object")
}

func serviceAccountToken(t *testing.T, ns, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	if err := cluster.Create(t.Context(), account); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
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
	if err := patch(`{"spec":{"suspend":true}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "may not change a spec") {
		t.Errorf("a change of the spec: %v", err)
	}
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

// testForbiddenRequests checks that the authorizer denies the most dangerous requests where the operator works, whatever
// docs/reference/permissions.md lists. test/permissions does that elsewhere.
func testForbiddenRequests(t *testing.T) {
	for _, denied := range []struct{ verbs, group, resources, namespace string }{
		{"list watch", "", "secrets", watchedNamespace},
		{"create", "", "pods/exec serviceaccounts/token", watchedNamespace},
		{"get", "", "pods/log", watchedNamespace},
		{"delete", "", "persistentvolumeclaims configmaps services serviceaccounts", watchedNamespace},
		{"deletecollection", "", "pods", watchedNamespace},
		{"delete", "networking.k8s.io", "networkpolicies", watchedNamespace},
		{"patch", "yardmaster.dev", "agenticsessions sessionrunners policies", watchedNamespace},
		{"delete", "yardmaster.dev", "queues workerpools", watchedNamespace},
		{"bind escalate", "rbac.authorization.k8s.io", "roles", watchedNamespace},
		{"delete", "", "pods", reportedNamespace},
		{"list", "", "pods", reportedNamespace},
		{"get patch delete", "batch", "jobs", reportedNamespace},
		{"delete", "yardmaster.dev", "jobreports", reportedNamespace},
		{"create", "yardmaster.dev", "sequentialjobs agenticsessions", unwatchedNamespace},
		{"list", "batch", "jobs", ""},
		{"list", "yardmaster.dev", "sequentialjobs", ""},
		{"list", "", "namespaces", ""},
		{"get", "", "nodes", ""},
	} {
		for name := range strings.FieldsSeq(denied.resources) {
			resource, subresource, _ := strings.Cut(name, "/")
			for verb := range strings.FieldsSeq(denied.verbs) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: serviceAccount, Groups: permissions.Groups(serviceAccount),
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: denied.group, Resource: resource, Subresource: subresource, Namespace: denied.namespace,
					},
				}}
				require.NoError(t, cluster.Create(t.Context(), review))
				if review.Status.Allowed {
					t.Errorf("the operator is allowed to %s %s in namespace %q: %s", verb, name, denied.namespace, review.Status.Reason)
				}
			}
		}
	}
}

// testComponents deploys components for the webhook, and checks that `make deploy` removes them again.
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
	admitAPIServer(t, network)
	require.NoError(t, webhookServes(t.Context()))
	require.True(t, !canConnect(t, nil, podAddress(leaderPod(t), 9443)), "another Pod can connect to the webhook")
	require.True(t, canConnect(t, nil, podAddress(leaderPod(t), 8443)), "another Pod cannot connect to the metrics")
	wantCreatorRecorded(t)
	t.Run("the webhook accepts only an API server with a client certificate, if one is required", testWebhookClientCertificate)

	require.NoError(t, redeploy(t.Context()))
	if !objectExists(t, mutating) || objectExists(t, policy) || objectExists(t, network) {
		t.Error("the components remain although they are no longer deployed")
	}
	wantCreatorRecorded(t)
}

// testWebhookClientCertificate checks that the webhook, if it is configured so, accepts only the API server, which
// proves its identity with a certificate.
func testWebhookClientCertificate(t *testing.T) {
	// The API server has no certificate for what it forwards.
	forward := func() string {
		path := fmt.Sprintf("/api/v1/namespaces/%s/services/https:yardmaster-webhook:443/proxy/", operatorNamespace)
		output, _ := newKubectlCommand(t.Context(), "get", "--raw", path).CombinedOutput()
		return string(output)
	}
	if output := forward(); !strings.Contains(output, "NotFound") {
		t.Errorf("without the requirement, a request without a certificate gets %s", output)
	}
	patch := `{"spec": {"template": {"spec": {"containers": [{"name": "yardmaster", "env": [
		{"name": "YARDMASTER_WEBHOOK_CLIENT_CA_FILE", "value": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}]}]}}}}`
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: operatorName, Namespace: operatorNamespace}}
	require.NoError(t, cluster.Patch(t.Context(), deployment, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	require.NoError(t, waitForOperator(t.Context())) // the API server can call the webhook
	if output := forward(); !strings.Contains(output, "tls: certificate required") {
		t.Errorf("a request without a certificate gets %s", output)
	}
}

// admitAPIServer does what the component asks of its users: it replaces the addresses in the policy.
func admitAPIServer(t *testing.T, network *networkingv1.NetworkPolicy) {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(network), network))
	network.Spec.Ingress[0].From[0].IPBlock.CIDR = apiServerEgress(t)[1].To.IPBlock.CIDR
	require.NoError(t, cluster.Update(t.Context(), network))
}

// wantCreatorRecorded waits until a session that claims to belong to another user belongs to its creator.
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

// createAndWait waits until Ready has the reason.
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
