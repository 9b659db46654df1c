package brokerconn

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// clientName identifies the operator's connections to people who inspect the broker.
const clientName = "yardmaster"

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// ReadCredentials reads the Secrets of a broker that an object of the namespace names.
func ReadCredentials(ctx context.Context, live client.Reader, namespace string, b *v1alpha1.Broker) (*broker.Credentials, error) {
	return readCredentials(ctx, live, BrokerKeyOf(namespace, b))
}

// readCredentials reads the Secrets that the key names. The reader must not be a cache: that would
// list and keep all Secrets of the namespace.
func readCredentials(ctx context.Context, live client.Reader, key BrokerKey) (*broker.Credentials, error) {
	a := &broker.Credentials{Name: clientName}
	data, err := secret(ctx, live, key.Namespace, key.URLSecret)
	if err != nil {
		return nil, err
	}
	if a.URL = strings.TrimSpace(string(data[key.URLKey])); a.URL == "" {
		return nil, invalid("Secret %q has nothing under the key %q", key.URLSecret, key.URLKey)
	}
	if key.TLSSecret != "" {
		if a.TLS, err = readTLS(ctx, live, key.Namespace, key.TLSSecret); err != nil {
			return nil, err
		}
	}
	if key.CredentialsSecret != "" {
		if data, err = secret(ctx, live, key.Namespace, key.CredentialsSecret); err != nil {
			return nil, err
		}
		a.Username, a.Password = string(data[corev1.BasicAuthUsernameKey]), string(data[corev1.BasicAuthPasswordKey])
		a.Token, a.NATSCredentials = string(data["token"]), data["creds"]
		if a.Username == "" && a.Token == "" && len(a.NATSCredentials) == 0 {
			return nil, invalid("Secret %q has none of the keys username, token, creds", key.CredentialsSecret)
		}
	}
	return a, nil
}

// readTLS reads a TLS Secret. The certificate authority, the client certificate, or both
// must be present.
func readTLS(ctx context.Context, live client.Reader, namespace, name string) (*broker.TLS, error) {
	data, err := secret(ctx, live, namespace, name)
	if err != nil {
		return nil, err
	}
	tls := broker.NewTLS(data["ca.crt"], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], "")
	if tls == nil {
		return nil, invalid("Secret %q has none of the keys ca.crt, tls.crt, tls.key", name)
	}
	return tls, nil
}

func secret(ctx context.Context, live client.Reader, namespace, name string) (map[string][]byte, error) {
	s := &corev1.Secret{}
	err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &ConnectionError{v1alpha1.ReasonSecretNotFound, fmt.Errorf("Secret %q not found", name)} //nolint:staticcheck // the kind is spelt so
	case apierrors.IsForbidden(err):
		return nil, invalid("the operator may not read Secret %q: its Role in the namespace must let it get secrets", name)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %q: %w", name, err)
	}
	return s.Data, nil
}

func invalid(format string, values ...any) error {
	return &ConnectionError{v1alpha1.ReasonSecretInvalid, fmt.Errorf(format, values...)}
}
