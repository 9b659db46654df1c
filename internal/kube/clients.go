package kube

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Clients are the clients of every reconciler.
type Clients struct {
	// Client reads from the cache.
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// NewClients returns the manager's clients for a controller, whose name is the source of its events.
func NewClients(mgr ctrl.Manager, controller string) Clients {
	return Clients{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder(controller), Clock: clock.RealClock{}}
}
