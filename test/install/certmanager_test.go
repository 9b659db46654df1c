//go:build e2e

package install

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/poll"
)

// The test does what cert-manager does with the Certificate and the annotations of the webhooks.
func TestReleaseOfTheChartWithCertManager(t *testing.T) {
	installCertManagerKinds(t)
	createNamespaces(t, "platform-certs", "team-c")
	run(t, "helm install yardmaster charts/yardmaster --namespace platform-certs --set 'namespaces={team-c}' --set certManager.enabled=true"+helmValues)
	issueCertificate(t, "platform-certs")
	run(t, "kubectl -n platform-certs rollout status deployment/yardmaster --timeout=10m")
	wantSequence(t, "team-c")
	uninstall(t, "platform-certs")
}

func installCertManagerKinds(t *testing.T) {
	t.Helper()
	for kind, plural := range map[string]string{"Certificate": "certificates", "Issuer": "issuers"} {
		crd := &unstructured.Unstructured{}
		manifest := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural + `.cert-manager.io},
			spec: {group: cert-manager.io, scope: Namespaced, names: {kind: ` + kind + `, plural: ` + plural + `},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
		if err := yaml.Unmarshal([]byte(manifest), crd); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), crd) })
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: kind + "List"})
		poll.Until(t, kind+" to be served", func() bool { return cluster.List(t.Context(), list) == nil })
	}
}

// issueCertificate writes the Secret of the Certificate in the namespace, and its CA into the webhooks.
func issueCertificate(t *testing.T, ns string) {
	t.Helper()
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "yardmaster-webhook"}, certificate); err != nil {
		t.Fatal(err)
	}
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	secretName, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	encoded, key := selfSigned(t, names)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: secretName}, Type: corev1.SecretTypeTLS}
	secret.Data = map[string][]byte{corev1.TLSCertKey: encoded, corev1.TLSPrivateKeyKey: key, "ca.crt": encoded}
	if err := cluster.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	for _, configuration := range []client.Object{validating, mutating} {
		if err := cluster.Get(t.Context(), client.ObjectKey{Name: "yardmaster-" + ns}, configuration); err != nil {
			t.Fatal(err)
		}
		if from := configuration.GetAnnotations()["cert-manager.io/inject-ca-from"]; from != ns+"/yardmaster-webhook" {
			t.Fatalf("the CA of %T comes from %q", configuration, from)
		}
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = encoded
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = encoded
	}
	for _, configuration := range []client.Object{validating, mutating} {
		if err := cluster.Update(t.Context(), configuration, client.FieldOwner("cert-manager-cainjector")); err != nil {
			t.Fatal(err)
		}
	}
}

func selfSigned(t *testing.T, names []string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey})
}
