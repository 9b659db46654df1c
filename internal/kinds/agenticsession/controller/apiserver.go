package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
)

// apiServerInterval is the time between two reads of the API server's addresses, which change when control planes are
// replaced. Watches would cost more, and would need a permission for all objects of their kinds.
const apiServerInterval = time.Minute

// apiServerName is the name of the API server's Service, and of the EndpointSlice that the API server itself maintains.
var apiServerName = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// apiServer has the addresses of the API server, at which runners renew their Leases.
type apiServer struct {
	reader client.Reader
	// changes receives an event when the addresses have changed.
	changes chan event.GenericEvent

	mu      sync.Mutex
	isKnown bool
	known   []networkingv1.NetworkPolicyEgressRule
}

func newAPIServer(reader client.Reader) *apiServer {
	return &apiServer{reader: reader, changes: make(chan event.GenericEvent, 1)}
}

// rules returns the rules that allow connections to the API server. The first call reads the addresses, so that no
// policy loses them when the operator starts.
func (a *apiServer) rules(ctx context.Context) ([]networkingv1.NetworkPolicyEgressRule, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isKnown {
		if _, err := a.refresh(ctx); err != nil {
			return nil, err
		}
	}
	return a.known, nil
}

// Start reads the addresses regularly until ctx ends. It implements manager.Runnable.
func (a *apiServer) Start(ctx context.Context) error {
	ticker := time.NewTicker(apiServerInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		a.mu.Lock()
		changed, err := a.refresh(ctx)
		a.mu.Unlock()
		switch {
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "Failed to read the addresses of the API server; sessions keep the known ones")
		case changed:
			select {
			case a.changes <- event.GenericEvent{Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: apiServerName.Namespace, Name: apiServerName.Name}}}:
			default: // an earlier event was not received yet
			}
		}
	}
}

// refresh requires the lock. It reports whether known addresses changed. At first, objects that do not exist or that
// the operator may not read count as objects without addresses. Later, they are an error, and the known addresses
// remain.
func (a *apiServer) refresh(ctx context.Context) (changed bool, err error) {
	service, endpoints := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	for _, object := range []client.Object{service, endpoints} {
		err := a.reader.Get(ctx, apiServerName, object)
		isMissing := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
		if err != nil && (!isMissing || a.isKnown) {
			return false, fmt.Errorf("reading the addresses of the API server: %w", err)
		}
	}
	rules := sessionrunner.AllowAPIServer(service, endpoints)
	changed = a.isKnown && !equality.Semantic.DeepEqual(a.known, rules)
	a.known, a.isKnown = rules, true
	return changed, nil
}
