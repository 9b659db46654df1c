//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// The operator's Pod runs only if it satisfies what its namespace enforces.
func operatorIsRestricted(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	must(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	if profile := ns.Labels["pod-security.kubernetes.io/enforce"]; profile != "restricted" {
		t.Errorf("the namespace enforces %q", profile)
	}
	if pod := leader(t); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the Pod is %s", pod.Status.Phase)
	}
}

func refusedEdit(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("edited", "").Step("a", held()).Step("b", script("true")).Obj())
	s.podOf("a")
	err := s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Command = []string{"true"} })
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.containers[0]") || !strings.Contains(err.Error(), "started") {
		t.Errorf("the edit of a started step: %v", err)
	}
	must(t, s.patch(func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[1].Command = []string{"sh", "-c", "echo edited"} }))
	s.letGo("a")
	s.untilPhase(v1alpha1.PhaseCompleted)
	if logs := s.logs(s.pods(&s.jobs()[1])[0].Name, "b"); logs != "edited\n" {
		t.Errorf("the log of the changed step is %q", logs)
	}
}

// certificateSecret reads the Secret of the webhook's certificate.
func certificateSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	must(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: certificates}, secret))
	return secret
}

// trustedCA returns the CA that the API server trusts when it calls the webhook.
func trustedCA(t *testing.T) []byte {
	t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	must(t, cluster.Get(t.Context(), client.ObjectKey{Name: operatorName}, configuration))
	return configuration.Webhooks[0].ClientConfig.CABundle
}

func ownCertificate(t *testing.T) {
	ca := trustedCA(t)
	if secret := certificateSecret(t); len(ca) == 0 || !bytes.Equal(ca, secret.Data["ca.crt"]) {
		t.Error("the API server does not trust the CA in the Secret")
	}
	block, _ := pem.Decode(ca)
	if block == nil {
		t.Fatal("the CA is not a certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	if certificate.Subject.CommonName != "yardmaster-ca" || certificate.Subject.String() != certificate.Issuer.String() {
		t.Errorf("the CA is %s, signed by %s", certificate.Subject, certificate.Issuer)
	}
}

func unwatchedNamespace(t *testing.T) {
	// The webhook would reject this SequentialJob, because it has no image.
	alone := createSequenceIn(t, unwatched, testbuilder.SequentialJob("unwatched", "").Step("a", testbuilder.StepImage("")).Obj())
	looked := createSequence(t, testbuilder.SequentialJob("watched", "").Step("a", script("true")).Obj())
	looked.untilPhase(v1alpha1.PhaseCompleted)
	if sj := alone.now(); sj.Status.ObservedGeneration > 0 || len(sj.Finalizers) != 0 || len(alone.jobs()) != 0 {
		t.Errorf("the operator changed it:\n%s", describe(sj))
	}
}

func metrics(t *testing.T) {
	looked := createSequence(t, testbuilder.SequentialJob("measured", "").Step("a", script("true")).Obj())
	looked.untilPhase(v1alpha1.PhaseCompleted)

	reader := serviceAccountToken(t, unwatched, "metrics-reader")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "yardmaster-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: unwatched, Name: "metrics-reader"}},
	}
	must(t, cluster.Create(t.Context(), binding))
	defer cluster.Delete(t.Context(), binding)

	address := forward(t, "service/yardmaster-metrics", "8443")
	if code, _ := scrape(t, address, ""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := scrape(t, address, serviceAccountToken(t, unwatched, "no-permissions")); code != http.StatusForbidden {
		t.Errorf("with a token without permissions: %d", code)
	}
	var code int
	var page string
	eventually(t, "the metrics reader to be authorized", func() bool {
		code, page = scrape(t, address, reader)
		return code == http.StatusOK
	})
	for _, name := range []string{
		"yardmaster_sequentialjob_step_transition_seconds_count",
		`yardmaster_sequentialjob_steps_total{result="succeeded"}`,
		"yardmaster_sequentialjob_active",
		"yardmaster_sequentialjob_conflicts_total",
	} {
		if !strings.Contains(page, "\n"+name+" ") {
			t.Errorf("metric %s is missing", name)
		}
	}
	if strings.Contains(page, looked.sj.Name) {
		t.Error("the metrics contain the name of an object")
	}
}

// serviceAccountToken creates a ServiceAccount and a token for it.
func serviceAccountToken(t *testing.T, ns, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	if err := cluster.Create(t.Context(), account); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	request := &authenticationv1.TokenRequest{}
	must(t, cluster.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

var forwarding = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+)`)

// forward forwards a local port to a Service until the end of the test, and returns its address.
func forward(t *testing.T, target, port string) (address string) {
	t.Helper()
	command := kubectl(t.Context(), "port-forward", "--namespace", operatorNamespace, target, ":"+port)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() }) // the test's context ends it
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if match := forwarding.FindStringSubmatch(lines.Text()); match != nil {
			return match[1]
		}
	}
	t.Fatalf("kubectl port-forward ended: %v", lines.Err())
	return ""
}

func scrape(t *testing.T, address, token string) (code int, page string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is self-signed and created at each start.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}
