package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/certs"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
	"github.com/yardmaster/yardmaster/test/poll"
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
			if err := do(sessionWithDeletionTimestamp(ns, verb, map[string]any{})); err != nil {
				t.Fatal(err)
			}
			stored := &v1alpha1.AgenticSession{}
			if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: verb}, stored); err != nil {
				t.Fatal(err)
			}
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
		"userContext": map[string]any{"userID": "forged", "groups": []any{"system:masters"}},
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
		status, body := postReview(t, "/"+webhookPathSegment+webhook.ValidatingPath(name), forged)
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
	if err != nil {
		t.Fatal(err)
	}
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "forged", Operation: admissionv1.Create, Namespace: s.Namespace, Name: s.Name, Object: runtime.RawExtension{Raw: object},
	}}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	raw, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, webhookAddress+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	peer := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := peer.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// rotationTest is an operator that manages the certificate and the path of webhooks of its own,
// which match no object.
type rotationTest struct {
	*testing.T
	rotation certs.Rotation
	ready    healthz.Checker
}

func startRotation(t *testing.T) *rotationTest {
	t.Helper()
	ns := namespace(t)
	mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certs", Namespace: ns}})
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "webhook", Namespace: ns}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"none.yardmaster.dev"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
	}}
	named := metav1.ObjectMeta{Name: ns, Annotations: map[string]string{"yardmaster.dev/secret-paths": "true"}}
	validates := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named}
	mutates := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: *named.DeepCopy()}
	for _, name := range []string{"first.yardmaster.dev", "second.yardmaster.dev"} {
		validates.Webhooks = append(validates.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: client, Rules: rules,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		})
	}
	mutates.Webhooks = []admissionregistrationv1.MutatingWebhook{{
		Name: "first.yardmaster.dev", ClientConfig: client, Rules: rules,
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}
	mustCreate(t, validates)
	mustCreate(t, mutates)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: cluster.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	env := &rotationTest{T: t, rotation: certs.Rotation{
		Secret: types.NamespacedName{Namespace: ns, Name: "certs"}, Service: "webhook", Webhooks: ns, Mutating: true, Directory: t.TempDir(),
	}}
	if env.ready, err = env.rotation.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return env
}

// waitUntilConfigured waits until all webhooks have a path in the Secret, and returns its segment.
func (env *rotationTest) waitUntilConfigured() (segment string) {
	env.Helper()
	poll.Until(env.T, "the webhook configurations to have the path", func() bool {
		segment = string(env.readSecret().Data[webhook.PathFile])
		v, m := env.readConfigurations()
		return segment != "" && env.ready(httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)) == nil &&
			pathOf(v.Webhooks[0].ClientConfig) == "/"+segment+"/validate/first.yardmaster.dev" &&
			pathOf(v.Webhooks[1].ClientConfig) == "/"+segment+"/validate/second.yardmaster.dev" &&
			pathOf(m.Webhooks[0].ClientConfig) == "/"+segment+"/mutate/first.yardmaster.dev" &&
			len(m.Webhooks[0].ClientConfig.CABundle) > 0
	})
	return segment
}

func pathOf(client admissionregistrationv1.WebhookClientConfig) string {
	if client.Service == nil || client.Service.Path == nil {
		return ""
	}
	return *client.Service.Path
}

func (env *rotationTest) readSecret() *corev1.Secret {
	env.Helper()
	secret := &corev1.Secret{}
	if err := cluster.Get(env.Context(), env.rotation.Secret, secret); err != nil {
		env.Fatal(err)
	}
	return secret
}

func (env *rotationTest) readConfigurations() (*admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration) {
	env.Helper()
	validates, mutates := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	env.read(validates)
	env.read(mutates)
	return validates, mutates
}

func (env *rotationTest) read(configuration client.Object) {
	env.Helper()
	if err := cluster.Get(env.Context(), client.ObjectKey{Name: env.rotation.Webhooks}, configuration); err != nil {
		env.Fatal(err)
	}
}

// patch applies a JSON patch.
func (env *rotationTest) patch(object client.Object, patch string) {
	env.Helper()
	if err := cluster.Patch(env.Context(), object, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		env.Fatal(err)
	}
}

func TestWebhookPathIsRestoredAfterSomeoneChangesIt(t *testing.T) {
	t.Parallel()
	env := startRotation(t)
	segment := env.waitUntilConfigured()
	served, err := os.ReadFile(filepath.Join(env.rotation.Directory, webhook.PathFile))
	if err != nil || string(served) != segment {
		t.Errorf("the server accepts %q, want %q: %v", served, segment, err)
	}

	validates, mutates := env.readConfigurations()
	env.patch(validates, `[{"op": "replace", "path": "/webhooks/1/clientConfig/service/path", "value": "/guessable"}]`)
	env.patch(mutates, `[{"op": "remove", "path": "/webhooks/0/clientConfig/service/path"}]`)
	if got := env.waitUntilConfigured(); got != segment {
		t.Errorf("the path changed to %s", got)
	}
	validates, _ = env.readConfigurations()
	env.patch(validates, `[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`)
	env.waitUntilConfigured()

	env.patch(env.readSecret(), `[{"op": "replace", "path": "/data/path", "value": ""}]`)
	poll.Until(t, "a new path", func() bool {
		now := string(env.readSecret().Data[webhook.PathFile])
		return now != "" && now != segment
	})
	env.waitUntilConfigured()
	if err := cluster.Delete(t.Context(), mutates); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the operator to be ready without the deleted configuration", func() bool {
		return env.ready(httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)) == nil
	})

	// The manifests of a version with fixed paths are applied, while this operator still runs.
	const fixed = "/validate-yardmaster-dev-v1alpha1-first"
	env.read(validates)
	env.patch(validates, `[{"op": "remove", "path": "/metadata/annotations"},
		{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": "`+fixed+`"},
		{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}]`)
	poll.Until(t, "the certificate authority to be restored", func() bool {
		env.read(validates)
		return len(validates.Webhooks[1].ClientConfig.CABundle) > 0
	})
	if got := pathOf(validates.Webhooks[0].ClientConfig); got != fixed {
		t.Errorf("the operator changed the fixed path to %s", got)
	}
}
