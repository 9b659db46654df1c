package integration

import (
	"bytes"
	"cmp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestWebhookCARefusesWhatItCannotInstall(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		namespace  string // instead of that of the Service
		annotation map[string]string
		secret     map[string][]byte
		want       string
	}{
		"another namespace than the Service's": {namespace: "default", want: "use --namespace "},
		"cert-manager":                         {annotation: map[string]string{"cert-manager.io/inject-ca-from": "a/b"}, want: "from cert-manager"},
		"an incomplete Secret":                 {secret: map[string][]byte{"path": []byte("a")}, want: "lacks ca.crt: delete the Secret"},
	} {
		t.Run(title, func(t *testing.T) {
			ns := namespace(t)
			configuration, stored := objectOf(t, uncalledWebhook, ns), &admissionregistrationv1.ValidatingWebhookConfiguration{}
			configuration.SetAnnotations(row.annotation)
			mustCreate(t, configuration)
			if row.secret != nil {
				mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "yardmaster-webhook-ca"}, Data: row.secret})
			}
			var out bytes.Buffer
			arguments := []string{"webhook-ca", "--kubeconfig", cluster.Kubeconfig, "--namespace", cmp.Or(row.namespace, ns)}
			if code := plugin.Run(t.Context(), arguments, &out, &out); code != 2 || !strings.Contains(out.String(), row.want) {
				t.Errorf("exit code %d, output %q, want %q", code, out.String(), row.want)
			}
			mustGet(t, client.ObjectKeyFromObject(configuration), stored)
			require.True(t, stored.Webhooks[0].ClientConfig.CABundle == nil, "the configuration was changed")
		})
	}
}

// uncalledWebhook is the configuration of an installation in this namespace whose webhook matches no object.
const uncalledWebhook = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
	metadata: {name: $NS, labels: {app.kubernetes.io/name: yardmaster}}, webhooks: [{
		name: first.yardmaster.dev, clientConfig: {service: {name: webhook, namespace: $NS}}, sideEffects: None, admissionReviewVersions: [v1],
		rules: [{operations: [CONNECT], apiGroups: [none.yardmaster.dev], apiVersions: [v1], resources: [none]}]}]}`
