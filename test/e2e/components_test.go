//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

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
