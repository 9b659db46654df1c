// Package chart tests the Helm chart against the real API server of KUBECONFIG.
package chart

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	releaseName  = "chart-test"
	namespace    = "chart-platform"
	teamA, teamB = "chart-team-a", "chart-team-b"
	chart        = "charts/yardmaster"
)

var cluster *testenv.Cluster

// Other tests have installed the CustomResourceDefinitions without Helm.
func TestMain(m *testing.M) { testenv.Main(m, "make test-integration", testenv.WithCRDs(&cluster)) }

func runHelm(t *testing.T, command string, args ...string) {
	t.Helper()
	testenv.Run(t, "helm", append([]string{command, releaseName, "--namespace", namespace}, args...)...)
}

func mustGet[T client.Object](t *testing.T, object T, ns, name string) T {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, object))
	return object
}

func exists(t *testing.T, object client.Object, ns, name string) bool {
	t.Helper()
	err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, object)
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil
}

// wantSecretsKept checks that Helm has kept what the operator wrote, and the certificate authority and the path of the webhooks.
func wantSecretsKept(t *testing.T, after string, authority *corev1.Secret) {
	t.Helper()
	secret := mustGet(t, &corev1.Secret{}, namespace, "yardmaster-worker-admin")
	require.True(t, bytes.Equal(secret.Data["key"], []byte("secret")), "after %s, the key of the operator is lost", after)
	diff := cmp.Diff(authority.Data, mustGet(t, &corev1.Secret{}, namespace, authority.Name).Data)
	require.True(t, diff == "", "after %s, the certificate authority is another one", after)
	webhooks := mustGet(t, &admissionregistrationv1.ValidatingWebhookConfiguration{}, "", "yardmaster-"+namespace)
	for i := range webhooks.Webhooks {
		called := &webhooks.Webhooks[i].ClientConfig
		if !bytes.Equal(called.CABundle, authority.Data["ca.crt"]) || !strings.HasPrefix(*called.Service.Path, "/"+string(authority.Data["path"])+"/") {
			t.Errorf("after %s, webhook %s has another authority or path", after, webhooks.Webhooks[i].Name)
		}
	}
}

// No operator runs here, so these steps show what Helm does to objects that the operator changes. Those of
// TestReleaseOfTheChartWithARunningOperator show what the operator does.
func TestReleaseIsInstalledUpgradedRolledBackAndUninstalled(t *testing.T) {
	for _, name := range []string{namespace, teamA, teamB} {
		cluster.CreateNamespace(t, name)
	}
	// The policies, which are kept, would restrict other tests.
	t.Cleanup(func() {
		ctx, ours := context.WithoutCancel(t.Context()), client.MatchingLabels{"app.kubernetes.io/instance": releaseName}
		bindings := cluster.DeleteAllOf(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, ours)
		policies := cluster.DeleteAllOf(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{}, ours)
		require.NoError(t, errors.Join(bindings, policies))
	})
	// Other tests have installed the CustomResourceDefinitions without Helm.
	runHelm(t, "install", chart, "--take-ownership", "--force-conflicts", "--set", "namespaces={"+teamA+"}")
	secret := mustGet(t, &corev1.Secret{}, namespace, "yardmaster-worker-admin")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"stringData": {"key": "secret"}}`))
	require.NoError(t, cluster.Patch(t.Context(), secret, patch, client.FieldOwner("yardmaster")))
	authority := mustGet(t, &corev1.Secret{}, namespace, "yardmaster-webhook-ca")
	wantSecretsKept(t, "the installation", authority)

	runHelm(t, "upgrade", chart, "--set", "namespaces={"+teamA+","+teamB+"}", "--set", "replicas=3")
	wantSecretsKept(t, "the upgrade", authority)

	runHelm(t, "rollback", "1")
	wantSecretsKept(t, "the rollback", authority)

	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: teamB, Name: "kept"}} // no webhook applies there
	require.NoError(t, cluster.Create(t.Context(), policy))
	webhooks := mustGet(t, &admissionregistrationv1.ValidatingWebhookConfiguration{}, "", "yardmaster-"+namespace)
	identity := mustGet(t, &rbacv1.ClusterRoleBinding{}, "", "yardmaster-identity-"+namespace)
	runHelm(t, "uninstall")
	if exists(t, &appsv1.Deployment{}, namespace, "yardmaster") || exists(t, &rbacv1.Role{}, teamA, "yardmaster-queue") ||
		exists(t, webhooks, "", webhooks.Name) || exists(t, identity, "", identity.Name) {
		t.Error("the uninstallation has left the Deployment, a Role, a binding or the webhooks")
	}
	require.True(t, exists(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, "", "yardmaster-session-users"),
		"the uninstallation has deleted a policy, which protects the sessions of other releases too")
	require.True(t, exists(t, &apiextensionsv1.CustomResourceDefinition{}, "", "policies.yardmaster.dev") && exists(t, policy, teamB, "kept"),
		"the uninstallation has deleted a CustomResourceDefinition or an object of its kind")
}
