package plugin

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestABrokerURLReplacesSentinelsWhichCannotBeForwarded(t *testing.T) {
	secret := natsSecret("redis://sentinel:26379")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sentinel", Namespace: "a"}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "sentinel-x", Namespace: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "sentinel"}},
		Endpoints:  []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "sentinel-0"}}},
	}
	c := &clusterConnection{WithWatch: newFakeClient(t, secret, service, slice), namespace: "a"}
	b := &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq, Sentinel: &v1alpha1.RedisSentinel{MasterName: "main"}}
	b.URLSecretRef.Name = "nats"
	access, err := brokerAccess(t.Context(), c, b, "")
	if err != nil || access.Sentinel == nil {
		t.Fatalf("%+v: %v", access, err)
	}
	if _, err := c.forwardToBroker(t.Context(), access); !errors.Is(err, errForwardedSentinel) {
		t.Errorf("got %v", err)
	}
	if access, err = brokerAccess(t.Context(), c, b, "redis://127.0.0.1:1"); err != nil || access.Sentinel != nil || access.URL != "redis://127.0.0.1:1" {
		t.Errorf("with an address: %+v: %v", access, err)
	}
}
