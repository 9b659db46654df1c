package brokerconn

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// Notification is sent to listeners when a connection changes or a queue has a message.
type Notification struct {
	Key brokeraccess.Key
	// Queue that has a message; empty if the connection was established, was lost, or has another problem.
	Queue string
}

// Options of a Manager and of a SourceReader. A duration of 0 means the default.
type Options struct {
	// DefaultBroker is the operator's broker, with Secrets in DefaultNamespace. Optional.
	DefaultBroker    *v1alpha1.Broker
	DefaultNamespace string
	// Dialer opens all connections. Default: a Dialer that denies local addresses.
	Dialer *bounded.Dialer

	// ProbeInterval is the time between two checks whether a broker answers. Default 3s.
	ProbeInterval time.Duration
	// RequestTimeout is how long a broker may take to answer. Default 3s.
	RequestTimeout time.Duration
	// MaxRetryInterval is the longest time between two attempts to reach a broker that does not answer. Default 5s.
	MaxRetryInterval time.Duration
	// SecretReadInterval is the time between two reads of the Secrets of a connection. Default 30s.
	SecretReadInterval time.Duration
	// IdleTimeout is when an unused connection is closed. Default 10m.
	IdleTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.Dialer == nil {
		o.Dialer = bounded.NewDialer(bounded.Options{})
	}
	o.ProbeInterval = cmp.Or(o.ProbeInterval, 3*time.Second)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 3*time.Second)
	o.MaxRetryInterval = cmp.Or(o.MaxRetryInterval, 5*time.Second)
	o.SecretReadInterval = cmp.Or(o.SecretReadInterval, 30*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 10*time.Minute)
}

// through returns the credentials for a connection that the operator opens for the namespace.
func (o *Options) through(credentials *broker.Credentials, namespace string) broker.Credentials {
	dialed := *credentials
	dialed.Dial, dialed.ConcealCauses = o.Dialer.For(namespace), true
	return dialed
}

// Manager owns the connections to brokers. Its methods, and the methods of its connections, are safe for concurrent use.
type Manager struct {
	liveReader client.Reader
	options    Options
	ctx        context.Context //nolint:containedctx // ends with the Manager, not with a call
	stop       context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex
	conns     map[brokeraccess.Key]*Conn
	listeners []func(Notification)
}

// NewManager returns a Manager that reads Secrets with the reader, which must not be a cache.
func NewManager(liveReader client.Reader, o Options) *Manager {
	o.setDefaults()
	m := &Manager{liveReader: liveReader, options: o, conns: map[brokeraccess.Key]*Conn{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Start closes all connections when ctx ends. It implements manager.Runnable.
func (m *Manager) Start(ctx context.Context) error {
	<-ctx.Done()
	m.stop()
	m.background.Wait()
	return nil
}

// AddListener registers a function for all notifications. The function must return quickly and must not call the Manager.
func (m *Manager) AddListener(listener func(Notification)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners = append(m.listeners, listener)
}

func (m *Manager) notifyListeners(notification Notification) {
	m.mu.Lock()
	listeners := m.listeners
	m.mu.Unlock()
	for _, notify := range listeners {
		notify(notification)
	}
}

// Conn returns the connection to a broker that an object of the namespace refers to; for a nil broker, the connection to the operator's
// broker. If no connection exists, it starts to connect in the background.
func (m *Manager) Conn(namespace string, b *v1alpha1.Broker) *Conn {
	if b == nil {
		b, namespace = m.options.DefaultBroker, m.options.DefaultNamespace
	}
	if b == nil {
		return &Conn{problem: &brokeraccess.ConnectionError{Reason: v1alpha1.ReasonNoBroker, Err: errNoBroker}}
	}
	key := brokeraccess.KeyOf(namespace, b)
	if !dial.IsSupported(dial.EngineName(b.Engine)) {
		return &Conn{Key: key, problem: &brokeraccess.ConnectionError{
			Reason: v1alpha1.ReasonNoBroker, Err: fmt.Errorf("broker.engine is %s, which this version of the operator does not support", b.Engine),
		}}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	conn, found := m.conns[key]
	if !found {
		conn = &Conn{Key: key, manager: m, healthChecks: make(chan struct{}, 1)}
		m.conns[key] = conn
		m.background.Go(func() { conn.maintain(m.ctx) })
	}
	conn.lastUsed = time.Now()
	return conn
}

// removeIfIdle removes a connection that was unused for the IdleTimeout, and reports whether it did.
func (m *Manager) removeIfIdle(conn *Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(conn.lastUsed) < m.options.IdleTimeout {
		return false
	}
	delete(m.conns, conn.Key)
	return true
}
