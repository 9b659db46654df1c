//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// gatewayService is the Service of the gateway, and the prefix of the name of its Secret.
const gatewayService = "yardmaster-gateway"

// testGateway installs the gateway as docs/gateway.md says, and runs the producer of examples/gateway, with a program
// instead of curl.
func testGateway(t *testing.T) {
	env := newQueueEnv(t, gatewayNamespace)
	env.patchQueue(`{"spec": {"results": {"retention": "1h"}}}`)
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		env.usePlainWorker(pool, "/yardmaster", "worker", "--exec", "--", "/plain", "once")
		setFixedReplicas(pool, 1, 1)
	})
	env.deployGateway()

	env.runKubectl("apply", "-f", env.producerWithoutCurl(filepath.Join(repositoryRoot, "examples", "gateway", "producer.yaml")))
	poll.Until(env.t, "the producer to have sent its job", func() bool {
		job := &batchv1.Job{}
		require.NoError(t, cluster.Get(t.Context(), env.objectKey("send-order"), job))
		if job.Status.Failed > 0 {
			t.Fatalf("sending failed: %s", env.runKubectl("logs", "job/send-order"))
		}
		return job.Status.Succeeded == 1
	})
	poll.Until(env.t, "the plugin to show that the job is done", func() bool {
		output, code := runPluginBinary(t, "queue", "job", "orders", "order-7", "-n", env.namespace)
		return code == 0 && strings.Contains(output, "done")
	})
}

// deployGateway deploys the gateway until the test ends, with a certificate, and the permission for the broker's Secret.
func (env *queueEnv) deployGateway() {
	t := env.t
	t.Helper()
	deployments.Lock()
	t.Cleanup(func() {
		defer deployments.Unlock()
		ctx := context.Background()
		require.NoError(t, errors.Join(deployOperator(ctx, watchedNamespaces), waitForOperator(ctx)))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: gatewayService + "-tls", Namespace: operatorNamespace}}
		if err := cluster.Delete(ctx, secret); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	certificate, key, err := certutil.GenerateSelfSignedCertKey(gatewayService+"."+operatorNamespace+".svc", nil, nil)
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: gatewayService + "-tls", Namespace: operatorNamespace}}
	secret.Type, secret.Data = corev1.SecretTypeTLS, map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	require.NoError(t, cluster.Create(t.Context(), secret))
	authority := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: gatewayService + "-ca", Namespace: env.namespace}}
	authority.Data = map[string]string{"ca.crt": string(certificate)}
	require.NoError(t, cluster.Create(t.Context(), authority))

	require.NoError(t, deployOperator(t.Context(), watchedNamespaces, "COMPONENTS=gateway"))
	env.runKubectl("create", "role", "yardmaster-gateway-broker", "--verb=get", "--resource=secrets", "--resource-name=broker")
	env.runKubectl("create", "rolebinding", "yardmaster-gateway-broker", "--role=yardmaster-gateway-broker", "--serviceaccount="+operatorNamespace+":"+gatewayService)
	env.runKubectl("-n", operatorNamespace, "rollout", "status", "deployment/"+gatewayService, "--timeout=10m")
}

// producerWithoutCurl writes the example with the plain worker's image, which sends the same request.
func (env *queueEnv) producerWithoutCurl(example string) string {
	t := env.t
	t.Helper()
	raw, err := os.ReadFile(example)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(raw), "        image: localhost/curl\n")
	_, after, hasContext := strings.Cut(rest, "        securityContext:\n")
	require.True(t, found && hasContext, "%s has another form", example)
	command := "        image: " + plainImage + "\n" +
		"        command: [/plain, post, 'https://" + gatewayService + "." + operatorNamespace + ".svc/queues/orders/jobs?id=order-7']\n" +
		"        securityContext:\n"
	path := filepath.Join(t.TempDir(), "producer.yaml")
	require.NoError(t, os.WriteFile(path, []byte(before+command+after), 0o600))
	return path
}
