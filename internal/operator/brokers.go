package operator

import (
	"errors"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

// brokerManagerOnce makes the brokers for the first controller that asks, and all others get the
// same one. Without such a controller it is nil.
func brokerManagerOnce(mgr ctrl.Manager, o Options) func() (*brokerconn.Manager, error) {
	return sync.OnceValues(func() (*brokerconn.Manager, error) { return newBrokerManager(mgr, o) })
}

// newBrokerManager keeps the connections of all controllers that have to do with brokers. The
// manager ends them.
func newBrokerManager(mgr ctrl.Manager, o Options) (*brokerconn.Manager, error) {
	if o.Broker.URLSecret != "" && o.OperatorNamespace == "" {
		return nil, errors.New("--broker-url-secret is a Secret in the operator's namespace: outside a cluster, --operator-namespace must be given")
	}
	brokers := brokerconn.NewManager(mgr.GetAPIReader(), brokerconn.Options{
		DefaultBroker: o.Broker.Reference(), DefaultNamespace: o.OperatorNamespace, Dialer: o.dialer,
	})
	if err := metric.Register(brokers); err != nil {
		return nil, err
	}
	return brokers, mgr.Add(brokers)
}
