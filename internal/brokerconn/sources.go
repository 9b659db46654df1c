package brokerconn

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// SourceReader read what waits at places that keep no queue of ours. What several pools ask of
// one place is asked once at a time, and a place that fails is left alone for a while.
type SourceReader struct {
	live    client.Reader
	options Options

	mu     sync.Mutex
	places map[string]*place
}

// NewSourceReader reads Secrets with the reader, which must not be a cache.
func NewSourceReader(live client.Reader, o Options) *SourceReader {
	o.setDefaults()
	return &SourceReader{live: live, options: o, places: map[string]*place{}}
}

// Start waits for the end of ctx, and ends all connections. The manager runs it.
func (s *SourceReader) Start(ctx context.Context) error {
	<-ctx.Done()
	s.drop(func(*place) bool { return true })
	return nil
}

// ReadBacklog of a source that an object of the namespace names.
func (s *SourceReader) ReadBacklog(ctx context.Context, namespace string, of *v1alpha1.Source) (*pool.QueueStats, error) {
	raw, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	s.drop(func(p *place) bool { return time.Since(p.used) > s.options.IdleTimeout })
	reading, err := s.place(namespace+"/"+string(raw)).read(ctx, s, namespace, of)
	if err != nil {
		return nil, err
	}
	figures := &pool.QueueStats{BacklogStats: scaling.BacklogStats{Backlog: reading.Backlog}}
	if reading.InFlight != nil {
		figures.InFlight, figures.InFlightKnown = *reading.InFlight, true
	}
	if reading.TotalArrivals != nil {
		figures.Arrived = new(int64(*reading.TotalArrivals)) //nolint:gosec // a count of messages
	}
	return figures, nil
}

func (s *SourceReader) place(key string) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, there := s.places[key]
	if !there {
		p = &place{}
		s.places[key] = p
	}
	p.used = time.Now()
	return p
}

// drop ends the connections of some places.
func (s *SourceReader) drop(which func(*place) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, p := range s.places {
		if which(p) {
			delete(s.places, key)
			go p.hangUp() // a question may be under way
		}
	}
}

// place is one source, as it is connected to now.
type place struct {
	used time.Time // guarded by Sources

	mu     sync.Mutex // held while it is asked: others wait for their turn
	source backlog.Source
	access *broker.Credentials
	// reread is when its Secrets are due again.
	reread time.Time
	// failures in a row, the last of which is told until the next try.
	failures int
	failure  error
	again    time.Time
}

func (p *place) read(ctx context.Context, s *SourceReader, namespace string, of *v1alpha1.Source) (backlog.Reading, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil && time.Now().Before(p.again) {
		return backlog.Reading{}, p.failure
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	began := time.Now()
	reading, err := p.ask(ctx, s, namespace, of)
	observeRequest(began, err)
	if p.failure = err; err == nil {
		p.failures = 0
		return reading, nil
	}
	p.failures++
	p.again = time.Now().Add(min(broker.ReconnectDelay(p.failures, rand.Float64()), s.options.MaxRetryInterval)) //nolint:gosec // to spread, not to hide
	p.reread = time.Time{}                                                                                       // a Secret may have been put right
	return backlog.Reading{}, err
}

func (p *place) ask(ctx context.Context, s *SourceReader, namespace string, of *v1alpha1.Source) (backlog.Reading, error) {
	if p.source == nil || !time.Now().Before(p.reread) {
		access, err := accessOf(ctx, s.live, namespace, of)
		if err != nil {
			return backlog.Reading{}, err
		}
		p.reread = time.Now().Add(s.options.SecretReadInterval)
		if p.source == nil || !access.Equal(p.access) {
			if err := p.connect(ctx, access, namespace, of); err != nil {
				return backlog.Reading{}, err
			}
		}
	}
	return p.source.Read(ctx)
}

// connect connects with what the Secrets say now, in place of what they said before.
func (p *place) connect(ctx context.Context, access *broker.Credentials, namespace string, of *v1alpha1.Source) error {
	connected, err := open(ctx, access, namespace, of)
	if err != nil {
		return err
	}
	if p.source != nil {
		p.source.Disconnect()
	}
	p.source, p.access = connected, access
	return nil
}

func (p *place) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source != nil {
		p.source.Disconnect()
	}
	p.source, p.reread = nil, time.Time{}
}

// accessOf a source, from its Secrets.
func accessOf(ctx context.Context, live client.Reader, namespace string, of *v1alpha1.Source) (*broker.Credentials, error) {
	var by *v1alpha1.BrokerAccess
	switch {
	case of.RedisList != nil:
		by = &of.RedisList.BrokerAccess
	case of.RedisStream != nil:
		by = &of.RedisStream.BrokerAccess
	case of.RabbitMQ != nil:
		by = &of.RabbitMQ.BrokerAccess
	case of.Prometheus != nil:
		by = &of.Prometheus.BrokerAccess
	default:
		return tlsOf(ctx, live, namespace, of.External)
	}
	return ReadCredentials(ctx, live, namespace, &v1alpha1.Broker{BrokerAccess: *by})
}

// tlsOf an external scaler, which has no other Secret.
func tlsOf(ctx context.Context, live client.Reader, namespace string, of *v1alpha1.ExternalSource) (*broker.Credentials, error) {
	a := &broker.Credentials{Name: clientName}
	if of == nil || of.TLSSecretRef == nil {
		return a, nil
	}
	var err error
	if a.TLS, err = readTLS(ctx, live, namespace, of.TLSSecretRef.Name); err != nil {
		return nil, err
	}
	return a, nil
}
