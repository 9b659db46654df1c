package brokerconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// BrokerKey is a reference to a broker. Two objects of a namespace that refer to the same
// Secrets have the same.
type BrokerKey struct {
	Namespace                    string
	Engine                       v1alpha1.Engine
	URLSecret, URLKey            string
	TLSSecret, CredentialsSecret string
}

// BrokerKeyOf a broker that an object of the namespace names.
func BrokerKeyOf(namespace string, b *v1alpha1.Broker) BrokerKey {
	key := BrokerKey{Namespace: namespace, Engine: b.Engine, URLSecret: b.URLSecretRef.Name, URLKey: b.URLSecretRef.Key}
	if key.URLKey == "" {
		key.URLKey = "url" // as the API server's default
	}
	if b.TLSSecretRef != nil {
		key.TLSSecret = b.TLSSecretRef.Name
	}
	if b.CredentialsSecretRef != nil {
		key.CredentialsSecret = b.CredentialsSecretRef.Name
	}
	return key
}

// Notification tells listeners that something is not as it was.
type Notification struct {
	// Key of the line.
	Key BrokerKey
	// Queue that has a message; empty: the connection was made, lost, or has another
	// problem.
	Queue string
}

// Options of a Keeper. Times that are 0 have defaults.
type Options struct {
	// DefaultBroker is the operator's own broker, with Secrets in the namespace DefaultNamespace;
	// nil: none.
	DefaultBroker    *v1alpha1.Broker
	DefaultNamespace string

	// ProbeInterval is the time between two looks whether a broker is there.
	ProbeInterval time.Duration
	// RequestTimeout is how long a broker may take to answer.
	RequestTimeout time.Duration
	// MaxRetryInterval is the longest time between two tries to reach a broker that does not answer.
	MaxRetryInterval time.Duration
	// SecretReadInterval is the time between two looks at the Secrets of a connection.
	SecretReadInterval time.Duration
	// IdleTimeout is after how long a connection is closed that nobody asks for.
	IdleTimeout time.Duration
}

func (o *Options) setDefaults() {
	set := func(value *time.Duration, fallback time.Duration) {
		if *value == 0 {
			*value = fallback
		}
	}
	set(&o.ProbeInterval, 3*time.Second)
	set(&o.RequestTimeout, 3*time.Second)
	set(&o.MaxRetryInterval, 5*time.Second)
	set(&o.SecretReadInterval, 30*time.Second)
	set(&o.IdleTimeout, 10*time.Minute)
}

// Manager keeps connections. All its methods, and those of its lines, may be called at the
// same time.
type Manager struct {
	liveReader client.Reader
	options    Options
	ctx        context.Context //nolint:containedctx // the connections' life, which no call is as long as
	stop       context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex
	conns     map[BrokerKey]*Conn
	listeners []func(Notification)
}

// NewManager reads Secrets with the reader, which must not be a cache.
func NewManager(live client.Reader, o Options) *Manager {
	o.setDefaults()
	k := &Manager{liveReader: live, options: o, conns: map[BrokerKey]*Conn{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Start waits for the end of ctx, and ends all connections. The manager runs it.
func (k *Manager) Start(ctx context.Context) error {
	<-ctx.Done()
	k.stop()
	k.background.Wait()
	return nil
}

// AddListener has the function told of every Event. It must be quick, and not call back.
func (k *Manager) AddListener(listener func(Notification)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, listener)
}

func (k *Manager) notifyListeners(event Notification) {
	k.mu.Lock()
	listeners := k.listeners
	k.mu.Unlock()
	for _, listener := range listeners {
		listener(event)
	}
}

// Conn to a broker that an object of the namespace names; to the operator's own if it
// names none. It is connected, if it was not, without waiting for that.
func (k *Manager) Conn(namespace string, b *v1alpha1.Broker) *Conn {
	if b == nil {
		b, namespace = k.options.DefaultBroker, k.options.DefaultNamespace
	}
	if b == nil {
		return &Conn{problem: &ConnectionError{v1alpha1.ReasonNoBroker, errNoBroker}}
	}
	key := BrokerKeyOf(namespace, b)
	if !dial.IsSupported(dial.EngineName(b.Engine)) {
		return &Conn{Key: key, problem: &ConnectionError{
			v1alpha1.ReasonNoBroker, fmt.Errorf("broker.engine is %s, which this version of the operator keeps no queues on", b.Engine),
		}}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	line, there := k.conns[key]
	if !there {
		line = newConn(k, key)
		k.conns[key] = line
		k.background.Go(func() { line.maintain(k.ctx) })
	}
	line.lastUsed = time.Now()
	return line
}

// removeIfIdle forgets a line that nobody has asked for in a long time.
func (k *Manager) removeIfIdle(l *Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(l.lastUsed) < k.options.IdleTimeout {
		return false
	}
	delete(k.conns, l.Key)
	return true
}
