package brokerconn

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/backlog/source"
)

// Access is what the Secrets of a broker say. None of it may get into an error or a log.
type Access struct {
	URL string
	// CA, Certificate and Key are PEM.
	CA, Certificate, Key []byte
	// ServerName that the broker's certificate is for, if it is not the one in the URL. With
	// it there is TLS.
	ServerName         string
	Username, Password string
	Token              string
	// Creds is a NATS credentials file.
	Creds []byte
}

// equal tells whether two say the same.
func (a *Access) equal(b *Access) bool {
	return a != nil && b != nil && reflect.DeepEqual(a, b)
}

// tls is nil if the Secrets say nothing of it.
func (a *Access) tls() *source.TLS {
	if len(a.CA)+len(a.Certificate)+len(a.Key) == 0 && a.ServerName == "" {
		return nil
	}
	return &source.TLS{CA: a.CA, Certificate: a.Certificate, Key: a.Key, ServerName: a.ServerName}
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// ReadCredentials reads the Secrets of a broker that an object of the namespace names.
func ReadCredentials(ctx context.Context, live client.Reader, namespace string, b *v1alpha1.Broker) (*Access, error) {
	return readCredentials(ctx, live, BrokerKeyOf(namespace, b))
}

// readCredentials reads the Secrets that the key names. The reader must not be a cache: that would
// list and keep all Secrets of the namespace.
func readCredentials(ctx context.Context, live client.Reader, key BrokerKey) (*Access, error) {
	a := &Access{}
	data, err := secret(ctx, live, key.Namespace, key.URLSecret)
	if err != nil {
		return nil, err
	}
	if a.URL = strings.TrimSpace(string(data[key.URLKey])); a.URL == "" {
		return nil, invalid("Secret %q has nothing under the key %q", key.URLSecret, key.URLKey)
	}
	if key.TLSSecret != "" {
		if data, err = secret(ctx, live, key.Namespace, key.TLSSecret); err != nil {
			return nil, err
		}
		a.CA, a.Certificate, a.Key = data["ca.crt"], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]
		if len(a.CA)+len(a.Certificate)+len(a.Key) == 0 {
			return nil, invalid("Secret %q has none of the keys ca.crt, tls.crt, tls.key", key.TLSSecret)
		}
	}
	if key.CredentialsSecret != "" {
		if data, err = secret(ctx, live, key.Namespace, key.CredentialsSecret); err != nil {
			return nil, err
		}
		a.Username, a.Password = string(data[corev1.BasicAuthUsernameKey]), string(data[corev1.BasicAuthPasswordKey])
		a.Token, a.Creds = string(data["token"]), data["creds"]
		if a.Username == "" && a.Token == "" && len(a.Creds) == 0 {
			return nil, invalid("Secret %q has none of the keys username, token, creds", key.CredentialsSecret)
		}
	}
	return a, nil
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
