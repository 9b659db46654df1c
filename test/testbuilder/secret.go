package testbuilder

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// BrokerSecret returns a Secret with keys and values that Queues may use.
func BrokerSecret(namespace, name string, data ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{}}
	s.Labels = map[string]string{v1alpha1.LabelBroker: "true"}
	for i := 0; i < len(data); i += 2 {
		s.StringData[data[i]] = data[i+1]
	}
	return s
}
