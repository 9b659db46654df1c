package plugin

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestParseServiceHost(t *testing.T) {
	for host, want := range map[string]serviceHost{
		"nats":                                   {service: "nats", namespace: "a"},
		"nats.queues":                            {service: "nats", namespace: "queues"},
		"nats.queues.svc":                        {service: "nats", namespace: "queues"},
		"nats.queues.svc.cluster.local":          {service: "nats", namespace: "queues"},
		"nats.queues.svc.cluster.local.":         {service: "nats", namespace: "queues"},
		"nats-0.nats.queues.svc":                 {pod: "nats-0", service: "nats", namespace: "queues"},
		"nats-0.nats.queues.svc.cluster.example": {pod: "nats-0", service: "nats", namespace: "queues"},
		"127.0.0.1":                              {},
		"::1":                                    {},
		"nats.example.org":                       {},
		"connect.ngs.global.svcs.example.org":    {},
		"a.very.long.name.svc.of.somebody.else":  {},
	} {
		if got, ok := parseServiceHost(host, "a"); got != want || ok != (want != serviceHost{}) {
			t.Errorf("%s is %+v (%t), want %+v", host, got, ok, want)
		}
	}
}

func TestFindReadyPodBehindABrokerService(t *testing.T) {
	service := func(kind corev1.ServiceType, name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "nats", Namespace: "queues"},
			Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Name: name, Port: 4222}, {Name: "monitor", Port: 80}}},
		}
	}
	slice := func(ready bool, pods ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "nats-x", Namespace: "queues", Labels: map[string]string{discoveryv1.LabelServiceName: "nats"}},
			Ports:      []discoveryv1.EndpointPort{{Name: new("monitor"), Port: new(int32(8222))}, {Name: new("client"), Port: new(int32(14222))}},
		}
		for _, pod := range pods {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
			})
		}
		return s
	}
	const address = "nats://me:secret@nats.queues:4222"
	for title, row := range map[string]struct {
		address string
		objects []client.Object
		want    podPort
		err     string
	}{
		"a ready Pod at its own port": {address, []client.Object{service("", "client"), slice(true, "nats-0", "nats-1")}, podPort{"queues", "nats-0", 14222}, ""},
		"the Pod in the host name":    {"nats://nats-1.nats.queues.svc", []client.Object{service("", "client"), slice(true, "nats-0", "nats-1")}, podPort{"queues", "nats-1", 14222}, ""},
		"a port that the Service does not define": {
			"nats://nats.queues:5222", []client.Object{service("", "client"), slice(true, "nats-0")}, podPort{"queues", "nats-0", 5222}, "",
		},
		"a Pod that is not ready is ignored":  {address, []client.Object{service("", "client"), slice(false, "nats-0")}, podPort{}, "the broker's Service queues/nats has no ready Pod"},
		"no EndpointSlice":                    {address, []client.Object{service("", "client")}, podPort{}, "the broker's Service queues/nats has no ready Pod"},
		"an ExternalName Service":             {address, []client.Object{service(corev1.ServiceTypeExternalName, "client")}, podPort{}, ""},
		"no Service":                          {address, nil, podPort{}, ""},
		"a public host name":                  {"nats://nats.example.org", nil, podPort{}, ""},
		"an invalid port":                     {"nats://nats.queues:70000", []client.Object{service("", "client"), slice(true, "nats-0")}, podPort{}, errInvalidBrokerPort.Error()},
		"an EndpointSlice of another Service": {address, []client.Object{service("", "client"), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "queues"}}}, podPort{}, "has no ready Pod"},
	} {
		t.Run(title, func(t *testing.T) {
			parsed, err := url.Parse(row.address)
			require.NoError(t, err)
			c := &clusterConnection{WithWatch: newFakeClient(t, row.objects...), namespace: "a"}
			got, err := c.findReadyPod(t.Context(), parsed)
			if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Fatalf("error %v, want %q", err, row.err)
			}
			if got == nil {
				got = &podPort{}
			}
			require.True(t, *got == row.want, "Pod port %+v, want %+v", *got, row.want)
		})
	}
}

func TestForwardedAccessUsesTheLocalPort(t *testing.T) {
	for title, row := range map[string]struct {
		access, want broker.Credentials
	}{
		"with user and password": {
			broker.Credentials{URL: "nats://me:secret@nats.queues:4222"}, broker.Credentials{URL: "nats://me:secret@127.0.0.1:5000"},
		},
		"with the number of a Redis database": {
			broker.Credentials{URL: "redis://redis/3"}, broker.Credentials{URL: "redis://127.0.0.1:5000/3"},
		},
		"with the server name of the certificate": {
			broker.Credentials{URL: "tls://nats.queues"}, broker.Credentials{URL: "tls://127.0.0.1:5000", TLS: &broker.TLS{ServerName: "nats.queues"}},
		},
		"with the server name if only the Secret enables TLS": {
			broker.Credentials{URL: "nats://nats.queues", TLS: &broker.TLS{CA: []byte("x")}}, broker.Credentials{URL: "nats://127.0.0.1:5000", TLS: &broker.TLS{ServerName: "nats.queues", CA: []byte("x")}},
		},
	} {
		t.Run(title, func(t *testing.T) {
			address, err := url.Parse(row.access.URL)
			require.NoError(t, err)
			redirectToLocalPort(&row.access, address, 5000)
			require.Equal(t, row.want, row.access)
		})
	}
}

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
	require.True(t, err == nil && access.Sentinel != nil, "%+v: %v", access, err)
	if _, err := c.forwardToBroker(t.Context(), access); !errors.Is(err, errForwardedSentinel) {
		t.Errorf("got %v", err)
	}
	if access, err = brokerAccess(t.Context(), c, b, "redis://127.0.0.1:1"); err != nil || access.Sentinel != nil || access.URL != "redis://127.0.0.1:1" {
		t.Errorf("with an address: %+v: %v", access, err)
	}
}
