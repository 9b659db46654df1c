package brokerconn

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/internal/broker/backlog/kedascaler"
	"github.com/yardmaster/yardmaster/internal/broker/backlog/prometheus"
	"github.com/yardmaster/yardmaster/internal/broker/backlog/rabbitmq"
	"github.com/yardmaster/yardmaster/internal/broker/backlog/redis"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// SourceReader reads the backlog of sources that the operator does not manage. Concurrent readers of a source share a request. After a
// failure, the source is not read again for a while.
type SourceReader struct {
	liveReader client.Reader
	options    Options
	reads      singleflight.Group

	mu    sync.Mutex
	conns map[string]*sourceConn
}

// NewSourceReader returns a SourceReader that reads Secrets with the reader, which must not be a cache.
func NewSourceReader(liveReader client.Reader, o Options) *SourceReader {
	o.setDefaults()
	return &SourceReader{liveReader: liveReader, options: o, conns: map[string]*sourceConn{}}
}

// Start closes all connections when ctx ends. It implements manager.Runnable.
func (r *SourceReader) Start(ctx context.Context) error {
	<-ctx.Done()
	r.closeConns(func(*sourceConn) bool { return true })
	return nil
}

// ReadBacklog reads the backlog of a source that an object of the namespace refers to.
func (r *SourceReader) ReadBacklog(ctx context.Context, namespace string, source *v1alpha1.Source) (*workerpool.QueueStats, error) {
	raw, err := json.Marshal(source)
	if err != nil {
		return nil, err
	}
	r.closeConns(func(c *sourceConn) bool { return time.Since(c.lastUsed) > r.options.IdleTimeout })
	key := namespace + "/" + string(raw)
	conn := r.connOf(key, namespace, source)
	result, err, _ := r.reads.Do(key, func() (any, error) {
		return conn.read(context.WithoutCancel(ctx)) // other callers may wait for the read too
	})
	if err != nil {
		return nil, err
	}
	reading := result.(backlog.Reading) //nolint:forcetypeassert // read returns it
	stats := &workerpool.QueueStats{BacklogStats: scaling.BacklogStats{
		Backlog: reading.Backlog, BacklogPerReplica: reading.BacklogPerReplica,
	}, Waiting: reading.Backlog}
	if reading.InFlight != nil {
		stats.InFlight, stats.InFlightKnown, stats.InFlightMayWait = *reading.InFlight, true, reading.InFlightMayWait
	}
	if reading.TotalArrivals != nil {
		stats.Arrived = new(int64(*reading.TotalArrivals)) //nolint:gosec // a count of messages
	}
	return stats, nil
}

func (r *SourceReader) connOf(key, namespace string, source *v1alpha1.Source) *sourceConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn, found := r.conns[key]
	if !found {
		conn = &sourceConn{liveReader: r.liveReader, options: &r.options, namespace: namespace, spec: source.DeepCopy()}
		r.conns[key] = conn
	}
	conn.lastUsed = time.Now()
	return conn
}

// closeConns closes connections in the background, because a request may be in progress.
func (r *SourceReader) closeConns(isSelected func(*sourceConn) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, conn := range r.conns {
		if isSelected(conn) {
			delete(r.conns, key)
			go conn.close()
		}
	}
}

type sourceConn struct {
	liveReader client.Reader
	options    *Options
	namespace  string
	spec       *v1alpha1.Source
	lastUsed   time.Time // guarded by the SourceReader

	mu             sync.Mutex
	source         backlog.Source
	credentials    *broker.Credentials
	nextSecretRead time.Time
	// lastError is returned until nextAttempt.
	lastError    error
	nextAttempt  time.Time
	failureCount int
}

func (c *sourceConn) read(ctx context.Context) (backlog.Reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastError != nil && time.Now().Before(c.nextAttempt) {
		return backlog.Reading{}, c.lastError
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	start := time.Now()
	reading, err := c.readOnce(ctx)
	recordRead(start, err)
	if c.lastError = err; err == nil {
		c.failureCount = 0
		return reading, nil
	}
	c.failureCount++
	delay := broker.ReconnectDelay(c.failureCount)
	c.nextAttempt = time.Now().Add(min(delay, c.options.MaxRetryInterval))
	c.nextSecretRead = time.Time{} // somebody may correct the Secret
	return backlog.Reading{}, err
}

func (c *sourceConn) readOnce(ctx context.Context) (backlog.Reading, error) {
	if c.source != nil && time.Now().Before(c.nextSecretRead) {
		return c.source.Read(ctx)
	}
	credentials := &broker.Credentials{Name: brokeraccess.ClientName}
	var err error
	if server := serverOf(c.spec); server != nil {
		credentials, err = brokeraccess.ReadCredentials(ctx, c.liveReader, brokeraccess.KeyOf(c.namespace, server))
	} else if external := c.spec.External; external != nil && external.TLSSecretRef != nil {
		credentials.TLS, err = brokeraccess.ReadTLS(ctx, c.liveReader, c.namespace, external.TLSSecretRef.Name)
	}
	if err != nil {
		return backlog.Reading{}, err
	}
	c.nextSecretRead = time.Now().Add(c.options.SecretReadInterval)
	if c.source == nil || !credentials.Equal(c.credentials) {
		source, err := connectSource(ctx, c.options.through(credentials, c.namespace), c.namespace, c.spec)
		if err != nil {
			return backlog.Reading{}, err
		}
		if c.source != nil {
			c.source.Disconnect()
		}
		c.source, c.credentials = source, credentials
	}
	return c.source.Read(ctx)
}

func (c *sourceConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source != nil {
		c.source.Disconnect()
	}
	c.source, c.nextSecretRead = nil, time.Time{}
}

// defaultVHost is the default that the API server sets.
const defaultVHost = "/"

func connectSource(ctx context.Context, credentials broker.Credentials, namespace string, source *v1alpha1.Source) (backlog.Source, error) {
	switch {
	case source.Redis != nil && source.Redis.Group == "":
		return redis.NewListSource(ctx, credentials, source.Redis.Key)
	case source.Redis != nil:
		return redis.NewStreamSource(ctx, credentials, source.Redis.Key, source.Redis.Group)
	case source.RabbitMQ != nil:
		return rabbitmq.NewQueueSource(credentials, cmp.Or(source.RabbitMQ.VHost, defaultVHost), source.RabbitMQ.Queue)
	case source.NATSJetStream != nil:
		spec := source.NATSJetStream
		return jetstream.NewConsumerSource(ctx, credentials, jetstream.ConsumerOptions{Stream: spec.Stream, Consumer: spec.Consumer})
	case source.Prometheus != nil:
		spec := source.Prometheus
		return prometheus.NewQuerySource(credentials, prometheus.Queries{Backlog: spec.Query, InFlight: spec.InFlightQuery, TotalArrivals: spec.ArrivalsQuery})
	case source.External != nil:
		return kedascaler.New(kedascaler.ScalerOptions{
			Address: source.External.Address, Namespace: namespace, Metadata: source.External.Metadata, Credentials: credentials,
		})
	}
	return nil, broker.Errorf(broker.ClassInvalid, "source has no type")
}

// SourceName identifies the server of a source within its namespace.
func SourceName(namespace string, source *v1alpha1.Source) string {
	switch server := serverOf(source); {
	case server != nil:
		return brokeraccess.KeyOf(namespace, server).String()
	case source.External != nil:
		return source.External.Address
	}
	return ""
}

// serverOf returns how to reach the server of a source; nil for an external scaler.
func serverOf(source *v1alpha1.Source) *v1alpha1.Broker {
	switch {
	case source.Redis != nil:
		return &v1alpha1.Broker{BrokerAccess: source.Redis.BrokerAccess, Sentinel: source.Redis.Sentinel}
	case source.RabbitMQ != nil:
		return &v1alpha1.Broker{BrokerAccess: source.RabbitMQ.BrokerAccess}
	case source.NATSJetStream != nil:
		return &v1alpha1.Broker{BrokerAccess: source.NATSJetStream.BrokerAccess, NATS: source.NATSJetStream.NATS}
	case source.Prometheus != nil:
		return &v1alpha1.Broker{BrokerAccess: source.Prometheus.BrokerAccess}
	}
	return nil
}
