package controller

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestKnownAddressesOfTheAPIServerRemainUntilOthersAreRead(t *testing.T) {
	var failure error
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiServerName.Namespace, Name: apiServerName.Name},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: service.ObjectMeta}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(service, slice).Build()
	server := newAPIServer(interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if failure != nil {
				return failure
			}
			return c.Get(ctx, key, object, options...)
		},
	}))
	refresh := func(wantChanged, wantErr bool, want string) {
		t.Helper()
		changed, err := server.refresh(t.Context())
		rules, _ := server.rules(t.Context())
		if changed != wantChanged || (err != nil) != wantErr || len(rules) != 1 || rules[0].To[0].IPBlock.CIDR != want {
			t.Errorf("changed: %t, error %v, rules %v; want %t, error: %t, %s", changed, err, rules, wantChanged, wantErr, want)
		}
	}

	failure = errors.New("unreachable")
	if _, err := server.rules(t.Context()); err == nil {
		t.Error("a session starts without the addresses although the API server has only failed to return them")
	}
	failure = nil
	refresh(false, false, "10.96.0.1/32")
	for _, failure = range []error{errors.New("unreachable"), apierrors.NewForbidden(schema.GroupResource{}, "", nil)} {
		refresh(false, true, "10.96.0.1/32")
	}
	failure = nil
	service.Spec.ClusterIPs = []string{"10.96.0.2"}
	if err := c.Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	refresh(true, false, "10.96.0.2/32")
	refresh(false, false, "10.96.0.2/32")
}

func TestSessionsStartIfTheOperatorMayNotReadTheAddressesOfTheAPIServer(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	forbidden := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}}
	if rules, err := newAPIServer(interceptor.NewClient(c, forbidden)).rules(t.Context()); err != nil || len(rules) > 0 {
		t.Errorf("got %v and the error %v", rules, err)
	}
}
