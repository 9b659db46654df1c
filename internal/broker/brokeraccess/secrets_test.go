package brokeraccess_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/test/require"
)

// A file that an editor or echo wrote ends with a newline, which kubectl create secret --from-file keeps.
func TestCredentialsHaveTheSettingsOfTheBrokerAndNoNewlinesOfFiles(t *testing.T) {
	for title, end := range map[string]string{"without a newline": "", "of Unix": "\n", "of Windows": "\r\n", "two": "\n\n"} {
		t.Run(title, func(t *testing.T) {
			secret := func(name string, data map[string]string) *corev1.Secret {
				s := &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{v1alpha1.LabelBroker: "true"}},
					Data:       map[string][]byte{},
				}
				for key, value := range data {
					s.Data[key] = []byte(value + end)
				}
				return s
			}
			reader := fake.NewClientBuilder().WithObjects(
				secret("url", map[string]string{"url": "redis://redis:6379/0"}),
				secret("login", map[string]string{"username": "user", "password": " p w ", "token": "t"}),
			).Build()
			reference := &v1alpha1.LocalReference{Name: "login"}
			key := brokeraccess.KeyOf("team", &v1alpha1.Broker{
				Engine: v1alpha1.EngineAsynq,
				BrokerAccess: v1alpha1.BrokerAccess{
					URLSecretRef: v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "url"}}, CredentialsSecretRef: reference,
				},
				NATS:     &v1alpha1.NATSConnection{JetStreamDomain: "hub", InboxPrefix: "_INBOX_a"},
				Sentinel: &v1alpha1.RedisSentinel{MasterName: "main", CredentialsSecretRef: reference},
			})
			got := require.Call(brokeraccess.ReadCredentials(t.Context(), reader, key)).Succeeds(t)
			require.Equal(t, [3]string{"redis://redis:6379/0", "hub", "_INBOX_a"}, [3]string{got.URL, got.JetStreamDomain, got.InboxPrefix})
			logins := [5]string{got.Username, got.Password, got.Token, got.Sentinel.Username, got.Sentinel.Password}
			require.Equal(t, [5]string{"user", " p w ", "t", "user", " p w "}, logins)
		})
	}
}
