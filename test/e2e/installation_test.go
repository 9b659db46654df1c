//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

// serviceAccountToken creates a ServiceAccount and a token for it.
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
