package brokeraccess

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// ClientName is the name of the operator's connections, as the broker shows it.
const ClientName = "yardmaster"

// ReadCredentials reads the Secrets that the key identifies. The reader must not be a cache, which would list and keep all Secrets of
// the namespace. Its error is a ConnectionError unless the API server did not answer.
func ReadCredentials(ctx context.Context, liveReader client.Reader, key Key) (*broker.Credentials, error) {
	credentials := &broker.Credentials{Name: ClientName, JetStreamDomain: key.JetStreamDomain, InboxPrefix: key.InboxPrefix}
	data, err := ReadSecret(ctx, liveReader, key.Namespace, key.URLSecret)
	if err != nil {
		return nil, err
	}
	if credentials.URL = strings.TrimSpace(string(data[key.URLKey])); credentials.URL == "" {
		return nil, InvalidSecret("Secret %q has no value for the key %q", key.URLSecret, key.URLKey)
	}
	if key.TLSSecret != "" {
		if credentials.TLS, err = ReadTLS(ctx, liveReader, key.Namespace, key.TLSSecret); err != nil {
			return nil, err
		}
	}
	if key.CredentialsSecret != "" {
		if data, err = ReadSecret(ctx, liveReader, key.Namespace, key.CredentialsSecret); err != nil {
			return nil, err
		}
		credentials.Username, credentials.Password = line(data, corev1.BasicAuthUsernameKey), line(data, corev1.BasicAuthPasswordKey)
		credentials.Token, credentials.NATSCredentials, credentials.NKeySeed = line(data, "token"), data["creds"], data["nkey"]
		if credentials.Username == "" && credentials.Token == "" && len(credentials.NATSCredentials)+len(credentials.NKeySeed) == 0 {
			return nil, InvalidSecret("Secret %q has none of the keys username, token, creds, nkey", key.CredentialsSecret)
		}
	}
	if key.SentinelMaster == "" {
		return credentials, nil
	}
	credentials.Sentinel = &broker.Sentinel{MasterName: key.SentinelMaster}
	if key.SentinelSecret == "" {
		return credentials, nil
	}
	if data, err = ReadSecret(ctx, liveReader, key.Namespace, key.SentinelSecret); err != nil {
		return nil, err
	}
	username, password := line(data, corev1.BasicAuthUsernameKey), line(data, corev1.BasicAuthPasswordKey)
	if username == "" || password == "" {
		return nil, InvalidSecret("Secret %q must have the keys username and password; the user of Sentinels with only a password is default", key.SentinelSecret)
	}
	credentials.Sentinel.Username, credentials.Sentinel.Password = username, password
	return credentials, nil
}

// line returns a value without the newline at its end, which kubectl create secret --from-file keeps and nobody sees. Workers do the
// same with their files.
func line(data map[string][]byte, key string) string {
	return strings.TrimRight(string(data[key]), "\r\n")
}

// ReadTLS reads a Secret with a CA certificate, a client certificate, or both.
func ReadTLS(ctx context.Context, liveReader client.Reader, namespace, name string) (*broker.TLS, error) {
	data, err := ReadSecret(ctx, liveReader, namespace, name)
	if err != nil {
		return nil, err
	}
	tls := broker.NewTLS(data["ca.crt"], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], "")
	if tls == nil {
		return nil, InvalidSecret("Secret %q has none of the keys ca.crt, tls.crt, tls.key", name)
	}
	if _, err := tls.ClientConfig(); err != nil { // else the broker would be said to have refused it
		return nil, InvalidSecret("Secret %q: %w", name, err)
	}
	return tls, nil
}

// ReadSecret returns the content of a Secret with the label v1alpha1.LabelBroker. Without the label, users who may create a Queue but
// not read Secrets could have the content of any Secret of the namespace sent to their own server. Its error is a ConnectionError
// unless the API server did not answer.
func ReadSecret(ctx context.Context, liveReader client.Reader, namespace, name string) (map[string][]byte, error) {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		// Objects that were stored before the schema had a pattern can have an invalid name.
		return nil, InvalidSecret("%q is not a valid name of a Secret: use lowercase letters, digits, '-' and '.'", name)
	}
	secret := &corev1.Secret{}
	err := liveReader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	switch decision.ClassOf(err) {
	case decision.None:
		if secret.Labels[v1alpha1.LabelBroker] == "true" {
			return secret.Data, nil
		}
		return nil, InvalidSecret("Secret %[1]q is not labeled for use with a broker: kubectl label secret %[1]s -n %[2]s %[3]s=true",
			name, namespace, v1alpha1.LabelBroker)
	case decision.NotFound:
		return nil, &ConnectionError{v1alpha1.ReasonSecretNotFound, fmt.Errorf("Secret %q not found", name)} //nolint:staticcheck // kinds are capitalized
	case decision.PermissionMissing:
		return nil, InvalidSecret("no permission to read Secret %q: allow the ServiceAccount of this program to get it", name)
	}
	return nil, fmt.Errorf("reading Secret %q: %w", name, err)
}

// InvalidSecret returns the ConnectionError of a Secret that lacks values for a connection.
func InvalidSecret(format string, values ...any) error {
	return &ConnectionError{v1alpha1.ReasonSecretInvalid, fmt.Errorf(format, values...)}
}
