package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/metric"
)

// DefaultBroker is the broker of Queues without a broker. Its Secrets are in the operator's namespace.
type DefaultBroker struct {
	Engine string
	// URLSecret is name or name/key.
	URLSecret         string
	TLSSecret         string
	CredentialsSecret string
	// NATS has settings of the connection. Only for the engine NATS.
	NATS v1alpha1.NATSConnection
	// SentinelMaster and SentinelSecret, for the login at the Sentinels. Only for the engine Asynq.
	SentinelMaster, SentinelSecret string
}

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
		DefaultBroker: o.Broker.brokerReference(), DefaultNamespace: o.OperatorNamespace, Dialer: o.dialer,
	})
	if err := metric.Register(brokers); err != nil {
		return nil, err
	}
	return brokers, mgr.Add(brokers)
}

// brokerReference returns nil if no default broker is configured.
func (b DefaultBroker) brokerReference() *v1alpha1.Broker {
	if b.URLSecret == "" {
		return nil
	}
	r := &v1alpha1.Broker{Engine: v1alpha1.Engine(b.Engine)}
	r.URLSecretRef.Name, r.URLSecretRef.Key, _ = strings.Cut(b.URLSecret, "/")
	if b.TLSSecret != "" {
		r.TLSSecretRef = &v1alpha1.SecretRef{Name: b.TLSSecret}
	}
	if b.CredentialsSecret != "" {
		r.CredentialsSecretRef = &v1alpha1.SecretRef{Name: b.CredentialsSecret}
	}
	if b.NATS != (v1alpha1.NATSConnection{}) {
		r.NATS = &b.NATS
	}
	if b.SentinelMaster != "" {
		r.Sentinel = &v1alpha1.RedisSentinel{MasterName: b.SentinelMaster}
		if b.SentinelSecret != "" {
			r.Sentinel.CredentialsSecretRef = &v1alpha1.SecretRef{Name: b.SentinelSecret}
		}
	}
	return r
}

func (b DefaultBroker) validate() error {
	engines := []string{string(v1alpha1.EngineNATS), string(v1alpha1.EngineAsynq)}
	if !slices.Contains(engines, b.Engine) {
		return fmt.Errorf("--broker-engine is %q, must be one of %s", b.Engine, strings.Join(engines, ", "))
	}
	if b.URLSecret == "" && (b.TLSSecret != "" || b.CredentialsSecret != "") {
		return errors.New("--broker-tls-secret and --broker-credentials-secret need --broker-url-secret")
	}
	if b.NATS != (v1alpha1.NATSConnection{}) && (b.URLSecret == "" || b.Engine != string(v1alpha1.EngineNATS)) {
		return errors.New("--broker-jetstream-domain and --broker-inbox-prefix need --broker-url-secret, and the engine NATS")
	}
	if b.SentinelMaster != "" && (b.URLSecret == "" || b.Engine != string(v1alpha1.EngineAsynq)) || b.SentinelSecret != "" && b.SentinelMaster == "" {
		return errors.New("--broker-sentinel-master needs --broker-url-secret, and the engine Asynq; --broker-sentinel-credentials-secret needs --broker-sentinel-master")
	}
	return nil
}
