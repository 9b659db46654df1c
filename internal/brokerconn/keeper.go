package brokerconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Key is a reference to a broker. Two objects of a namespace that refer to the same
// Secrets have the same.
type Key struct {
	Namespace                    string
	Engine                       v1alpha1.Engine
	URLSecret, URLKey            string
	TLSSecret, CredentialsSecret string
}

// KeyOf a broker that an object of the namespace names.
func KeyOf(namespace string, b *v1alpha1.Broker) Key {
	key := Key{Namespace: namespace, Engine: b.Engine, URLSecret: b.URLSecretRef.Name, URLKey: b.URLSecretRef.Key}
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

// Event tells listeners that something is not as it was.
type Event struct {
	// Key of the line.
	Key Key
	// Queue that has a message; empty: the connection was made, lost, or has another
	// problem.
	Queue string
}

// Options of a Keeper. Times that are 0 have defaults.
type Options struct {
	// Engines that can be connected to.
	Engines map[v1alpha1.Engine]Dial
	// Default is the operator's own broker, with Secrets in the namespace DefaultNamespace;
	// nil: none.
	Default          *v1alpha1.Broker
	DefaultNamespace string

	// Probe is the time between two looks whether a broker is there.
	Probe time.Duration
	// Patience is how long a broker may take to answer.
	Patience time.Duration
	// Retry is the longest time between two tries to reach a broker that does not answer.
	Retry time.Duration
	// Reread is the time between two looks at the Secrets of a connection.
	Reread time.Duration
	// Idle is after how long a connection is closed that nobody asks for.
	Idle time.Duration
}

func (o *Options) setDefaults() {
	set := func(value *time.Duration, fallback time.Duration) {
		if *value == 0 {
			*value = fallback
		}
	}
	set(&o.Probe, 3*time.Second)
	set(&o.Patience, 3*time.Second)
	set(&o.Retry, 5*time.Second)
	set(&o.Reread, 30*time.Second)
	set(&o.Idle, 10*time.Minute)
	if o.Engines == nil {
		o.Engines = Engines()
	}
}

// Keeper keeps connections. All its methods, and those of its lines, may be called at the
// same time.
type Keeper struct {
	live    client.Reader
	options Options
	ctx     context.Context //nolint:containedctx // the connections' life, which no call is as long as
	stop    context.CancelFunc
	closing sync.WaitGroup

	mu        sync.Mutex
	lines     map[Key]*Line
	listeners []func(Event)
}

// NewKeeper reads Secrets with the reader, which must not be a cache.
func NewKeeper(live client.Reader, o Options) *Keeper {
	o.setDefaults()
	k := &Keeper{live: live, options: o, lines: map[Key]*Line{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Start waits for the end of ctx, and ends all connections. The manager runs it.
func (k *Keeper) Start(ctx context.Context) error {
	<-ctx.Done()
	k.stop()
	k.closing.Wait()
	return nil
}

// Listen has the function told of every Event. It must be quick, and not call back.
func (k *Keeper) Listen(listener func(Event)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, listener)
}

func (k *Keeper) tell(event Event) {
	k.mu.Lock()
	listeners := k.listeners
	k.mu.Unlock()
	for _, listener := range listeners {
		listener(event)
	}
}

// Line to a broker that an object of the namespace names; to the operator's own if it
// names none. It is connected, if it was not, without waiting for that.
func (k *Keeper) Line(namespace string, b *v1alpha1.Broker) *Line {
	if b == nil {
		b, namespace = k.options.Default, k.options.DefaultNamespace
	}
	if b == nil {
		return &Line{problem: &Error{v1alpha1.ReasonNoBroker, errNoBroker}}
	}
	key := KeyOf(namespace, b)
	dial, known := k.options.Engines[b.Engine]
	if !known {
		return &Line{Key: key, problem: &Error{
			v1alpha1.ReasonNoBroker, fmt.Errorf("broker.engine is %s, which this version of the operator keeps no queues on", b.Engine),
		}}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	line, there := k.lines[key]
	if !there {
		line = newLine(k, key, dial)
		k.lines[key] = line
		k.closing.Go(func() { line.keep(k.ctx) })
	}
	line.used = time.Now()
	return line
}

// drop forgets a line that nobody has asked for in a long time.
func (k *Keeper) drop(l *Line) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(l.used) < k.options.Idle {
		return false
	}
	delete(k.lines, l.Key)
	return true
}
