package plugin

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// natsQueue returns a Queue in namespace a, on the broker of the Secret nats.
func natsQueue(name string, changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1"}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "nats"
	q.Status.Name = name
	for _, change := range changes {
		change(q)
	}
	return q
}

func natsSecret(url string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "nats", Namespace: "a", Labels: map[string]string{v1alpha1.LabelBroker: "true"}},
		Data:       map[string][]byte{"url": []byte(url)},
	}
}
