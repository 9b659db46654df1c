package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
	"github.com/yardmaster/yardmaster/internal/plugin"
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

// webhookCATest is an installation whose webhooks match no object, one of several in the cluster. Its configurations have the name of
// its namespace.
type webhookCATest struct {
	*testing.T
	ns string
}

func newWebhookCATest(t *testing.T) *webhookCATest {
	t.Helper()
	ns := namespace(t)
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "webhook", Namespace: ns}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"none.yardmaster.dev"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
	}}
	named := metav1.ObjectMeta{Name: ns, Labels: map[string]string{"app.kubernetes.io/name": "yardmaster"}}
	validates := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: *named.DeepCopy()}
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
	return &webhookCATest{T: t, ns: ns}
}

// run runs kubectl yardmaster webhook-ca for the installation.
func (env *webhookCATest) run(args ...string) (code int, output string) {
	env.Helper()
	var out bytes.Buffer
	code = plugin.Run(env.Context(), append([]string{
		"webhook-ca", "--kubeconfig", cluster.Kubeconfig, "--namespace", env.ns,
	}, args...), &out, &out)
	return code, out.String()
}

func (env *webhookCATest) mustRun(args ...string) (output string) {
	env.Helper()
	code, output := env.run(args...)
	if code != 0 {
		env.Fatalf("exit code %d: %s", code, output)
	}
	return output
}

// clients returns how the API server calls the webhooks, by verb and name.
func (env *webhookCATest) clients() map[string]admissionregistrationv1.WebhookClientConfig {
	env.Helper()
	validates, mutates := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	for _, configuration := range []client.Object{validates, mutates} {
		if err := cluster.Get(env.Context(), client.ObjectKey{Name: env.ns}, configuration); err != nil {
			env.Fatal(err)
		}
	}
	all := map[string]admissionregistrationv1.WebhookClientConfig{}
	for i := range validates.Webhooks {
		all[webhook.ValidatingPath(validates.Webhooks[i].Name)] = validates.Webhooks[i].ClientConfig
	}
	for i := range mutates.Webhooks {
		all[webhook.MutatingPath(mutates.Webhooks[i].Name)] = mutates.Webhooks[i].ClientConfig
	}
	return all
}

// startReplica starts a webhook server with the Secret that the kubelet mounts at its start, and returns its address.
func (env *webhookCATest) startReplica() (address string) {
	env.Helper()
	secret := &corev1.Secret{}
	if err := cluster.Get(env.Context(), client.ObjectKey{Namespace: env.ns, Name: "yardmaster-webhook-ca"}, secret); err != nil {
		env.Fatal(err)
	}
	directory := env.TempDir()
	for name, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			env.Fatal(err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(env.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		env.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		env.Fatal(err)
	}
	server := webhook.New(webhook.Options{Port: port, Directory: directory, Hosts: []string{"webhook." + env.ns + ".svc"}})
	for path := range env.clients() {
		server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(env.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	env.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			env.Error(err)
		}
	})
	poll.Until(env.T, "the replica to serve", func() bool { return server.StartedChecker()(nil) == nil })
	return listener.Addr().String()
}

// callable reports whether the API server can call all webhooks of a replica, as their configurations say.
func (env *webhookCATest) callable(address string) bool {
	env.Helper()
	for path, configuration := range env.clients() {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(configuration.CABundle)
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "webhook." + env.ns + ".svc"},
			DisableKeepAlives: true,
		}
		if configuration.Service.Path == nil || !strings.HasSuffix(*configuration.Service.Path, path) {
			return false
		}
		request, err := http.NewRequestWithContext(env.Context(), http.MethodPost, "https://"+address+*configuration.Service.Path, strings.NewReader("{}"))
		if err != nil {
			env.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusNotFound {
			return false
		}
	}
	return true
}

func TestWebhooksCanBeCalledOnceTheirCertificateAuthorityExists(t *testing.T) {
	t.Parallel()
	env := newWebhookCATest(t)
	if output := env.mustRun(); !strings.Contains(output, "for 2 webhooks") || !strings.Contains(output, "for 1 webhooks") {
		t.Errorf("output: %s", output)
	}
	replica := env.startReplica()
	if !env.callable(replica) {
		t.Error("the API server cannot call the webhooks")
	}
	if output := env.mustRun(); output != "" {
		t.Errorf("a second run changed something: %s", output)
	}
	// Somebody changes the configurations.
	validates := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: env.ns}}
	patch := `[{"op": "replace", "path": "/webhooks/1/clientConfig/service/path", "value": "/guessable"},
		{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`
	mustPatch(t, validates, client.RawPatch(types.JSONPatchType, []byte(patch)))
	if env.callable(replica) {
		t.Error("the change has no effect")
	}
	if output := env.mustRun(); !strings.Contains(output, "for 2 webhooks") || !env.callable(replica) {
		t.Errorf("the configurations are not restored: %s", output)
	}
}

// While replicas with the old and with the new authority serve, the API server can call both.
func TestWebhooksCanBeCalledWhileTheirCertificateAuthorityIsRenewed(t *testing.T) {
	t.Parallel()
	env := newWebhookCATest(t)
	env.mustRun()
	before := env.startReplica()
	env.mustRun("--renew")
	after := env.startReplica()
	if !env.callable(before) || !env.callable(after) {
		t.Error("a replica cannot be called during the renewal")
	}
	env.mustRun()
	if env.callable(before) || !env.callable(after) {
		t.Error("after the renewal, not only replicas with the new authority can be called")
	}
}

func TestWebhookCARefusesWhatItCannotInstall(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		prepare func(*webhookCATest)
		args    []string
		want    string
	}{
		"another namespace than the Service's": {func(*webhookCATest) {}, []string{"--namespace", "default"}, "use --namespace "},
		"cert-manager": {func(env *webhookCATest) {
			patch := `{"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}}`
			validates := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: env.ns}}
			if err := cluster.Patch(env.Context(), validates, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				env.Fatal(err)
			}
		}, nil, "from cert-manager"},
		"an incomplete Secret": {func(env *webhookCATest) {
			mustCreate(env.T, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: env.ns, Name: "yardmaster-webhook-ca"}, Data: map[string][]byte{"path": []byte("a")},
			})
		}, nil, "lacks ca.crt: delete the Secret"},
	} {
		t.Run(title, func(t *testing.T) {
			env := newWebhookCATest(t)
			row.prepare(env)
			code, output := env.run(row.args...)
			if code != 2 || !strings.Contains(output, row.want) {
				t.Errorf("exit code %d, output %q, want %q", code, output, row.want)
			}
			if env.clients()[webhook.ValidatingPath("first.yardmaster.dev")].CABundle != nil {
				t.Error("the configuration was changed")
			}
		})
	}
}
