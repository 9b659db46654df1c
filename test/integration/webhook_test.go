package integration

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// A deletionTimestamp in a request proves nothing: only the stored object shows that it is being
// deleted.
func TestDeletionTimestampInARequestDoesNotBypassTheWebhooks(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	write := map[string]func(*unstructured.Unstructured) error{
		"create": func(s *unstructured.Unstructured) error { return cluster.Create(t.Context(), s) },
		"apply": func(s *unstructured.Unstructured) error {
			return cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(s), client.FieldOwner("user"), client.ForceOwnership)
		},
	}
	for verb, do := range write {
		t.Run(verb, func(t *testing.T) {
			require.NoError(t, do(sessionWithDeletionTimestamp(ns, verb, map[string]any{})))
			stored := &v1alpha1.AgenticSession{}
			mustGet(t, client.ObjectKey{Namespace: ns, Name: verb}, stored)
			if user := stored.Spec.UserContext; user == nil || user.UserID == "" || user.UserID == "forged" {
				t.Errorf("the session belongs to %+v", user)
			}
			invalid := sessionWithDeletionTimestamp(ns, verb+"-invalid", map[string]any{"PATH": "/bin"})
			if err := do(invalid); !apierrors.IsInvalid(err) {
				t.Errorf("an invalid session: %v", err)
			}
		})
	}
	t.Run("update", func(t *testing.T) {
		change := sessionWithDeletionTimestamp(ns, "apply", map[string]any{"PATH": "/bin"})
		unstructured.RemoveNestedField(change.Object, "spec", "userContext")
		if err := write["apply"](change); !apierrors.IsInvalid(err) {
			t.Errorf("an invalid update: %v", err)
		}
	})
}

// sessionWithDeletionTimestamp claims to belong to another user.
func sessionWithDeletionTimestamp(ns, name string, variables map[string]any) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"prompt": "do it", "environmentVariables": variables,
		"userContext": map[string]any{"userID": "forged"},
	}}}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
	s.SetNamespace(ns)
	s.SetName(name)
	s.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(time.Hour))))
	return s
}

// The warnings of a review describe the SessionRunner of its namespace. Only the API server may
// receive them, which has checked the user's permission.
func TestForgedReviewRevealsNothing(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	runner.Spec.Image = "runner:1"
	mustCreate(t, runner)
	forged := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "forged", Namespace: ns}}
	forged.Spec.Prompt, forged.Spec.Runner, forged.Spec.Image = "do it", "default", "evil:1"
	const name = "agenticsessions.yardmaster.dev"
	poll.Until(t, "the API server to receive the warning", func() bool {
		status, body := postReview(t, "/"+testenv.WebhookPathSegment+webhook.ValidatingPath(name), forged)
		return status == http.StatusOK && strings.Contains(body, "spec.image")
	})
	for _, path := range []string{
		webhook.ValidatingPath(name), "/validate-yardmaster-dev-v1alpha1-agenticsession", "/guess" + webhook.ValidatingPath(name),
	} {
		if status, body := postReview(t, path, forged); status != http.StatusNotFound || strings.Contains(body, "spec") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// postReview sends a review of a new session to the webhook server, as any Pod could.
func postReview(t *testing.T, path string, s *v1alpha1.AgenticSession) (status int, body string) {
	t.Helper()
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
	object, err := json.Marshal(s)
	require.NoError(t, err)
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "forged", Operation: admissionv1.Create, Namespace: s.Namespace, Name: s.Name, Object: runtime.RawExtension{Raw: object},
	}}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	raw, err := json.Marshal(review)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, webhooks.Address+path, bytes.NewReader(raw))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	peer := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := peer.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

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
			if configuration.Webhooks[0].ClientConfig.CABundle != nil {
				t.Error("the configuration was changed")
			}
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
