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
			configuration := newUncalledWebhook(ns)
			configuration.Annotations = row.annotation
			mustCreate(t, configuration)
			if row.secret != nil {
				mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "yardmaster-webhook-ca"}, Data: row.secret})
			}
			var out bytes.Buffer
			arguments := []string{"webhook-ca", "--kubeconfig", cluster.Kubeconfig, "--namespace", cmp.Or(row.namespace, ns)}
			if code := plugin.Run(t.Context(), arguments, &out, &out); code != 2 || !strings.Contains(out.String(), row.want) {
				t.Errorf("exit code %d, output %q, want %q", code, out.String(), row.want)
			}
			mustGet(t, client.ObjectKeyFromObject(configuration), configuration)
			require.True(t, configuration.Webhooks[0].ClientConfig.CABundle == nil, "the configuration was changed")
		})
	}
}

// newUncalledWebhook returns the configuration of an installation in this namespace whose webhook matches no object.
func newUncalledWebhook(ns string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"app.kubernetes.io/name": "yardmaster"}},
	}
	configuration.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name:         "first.yardmaster.dev",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "webhook", Namespace: ns}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"none.yardmaster.dev"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		}},
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}
	return configuration
}
