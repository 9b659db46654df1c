package client

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/construct"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/internal/broker/login"
)

const defaultTimeout = 10 * time.Second

// Options configure a Client.
type Options struct {
	// Broker that has the queues.
	Broker BrokerConfig
	// Name identifies the connection to people who inspect the broker. The default is the name of the program.
	Name string
	// Timeout bounds each call, and each thousand jobs of EnqueueMany, even if the context of the call ends later. The default is 10 seconds.
	Timeout time.Duration
	// Codec encodes the values of Enqueue[T]. The default is JSON.
	Codec Codec
	// TracerProvider makes a span of each request that sends. By default there are no spans; jobs then have the trace context of the span in the context
	// of the call. For the global provider of OpenTelemetry, set otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
}

// Client sends jobs to the queues of one broker. Its methods are safe for concurrent use.
type Client struct {
	timeout time.Duration
	codec   Codec
	tracer  sendTracer
	now     func() time.Time
	// check returns an error if calls must fail. Only tests set it.
	check func() error
	// connect returns a new connection. It is nil if the producer has none.
	connect func(context.Context) (broker.Producer, error)
	// connecting has an element while a call replaces the producer.
	connecting chan struct{}

	mu       sync.Mutex
	producer broker.Producer
	isClosed bool
	// isDisconnected: no later producer replaces this one.
	isDisconnected bool
	// running is the number of calls; idle is closed when it is 0 and the client is closed.
	running int
	idle    chan struct{}
}

// New connects to the broker. The client reconnects by itself until Close. New fails with ErrInvalid, ErrUnauthorized or, if the broker
// does not respond in time, ErrUnavailable.
func New(ctx context.Context, options Options) (*Client, error) {
	if err := login.Validate(&options.Broker); err != nil {
		return nil, &Error{Reason: ErrInvalid, Field: "broker", Err: err}
	}
	if err := options.validateTimeout(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(options.Timeout, defaultTimeout))
	defer cancel()
	name := options.Name
	if name == "" && len(os.Args) > 0 {
		name = strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	}
	connect := func(ctx context.Context) (broker.Producer, dial.EngineName, error) {
		engine, engineName, err := login.Connect(ctx, &options.Broker, name)
		if err != nil {
			return nil, "", broker.SendErrorOf(err)
		}
		producer, isProducer := engine.(broker.Producer)
		if !isProducer {
			engine.Disconnect()
			return nil, "", broker.UnsupportedField("broker.url", "names the engine %s, which cannot send jobs", engineName)
		}
		return producer, engineName, nil
	}
	producer, engineName, err := connect(ctx)
	if err != nil {
		return nil, newError("", "", err)
	}
	c := newClient(&options, producer, engineName)
	c.connect = func(ctx context.Context) (broker.Producer, error) {
		producer, _, err := connect(ctx)
		return producer, err
	}
	return c, nil
}

func (o *Options) validateTimeout() error {
	if o.Timeout < 0 {
		return newError("", "", broker.InvalidField("timeout", "is %s, must not be negative", o.Timeout))
	}
	return nil
}

func init() {
	construct.Client = func(given any, producer broker.Producer, now func() time.Time, check func() error) (any, error) {
		options, _ := given.(Options)
		if err := options.validateTimeout(); err != nil {
			return nil, err
		}
		c := newClient(&options, producer, dial.NATSEngine)
		c.now, c.check = now, check
		return c, nil
	}
}

func newClient(options *Options, producer broker.Producer, engine dial.EngineName) *Client {
	c := &Client{
		producer: producer, timeout: cmp.Or(options.Timeout, defaultTimeout), codec: cmp.Or[Codec](options.Codec, JSON{}),
		now: time.Now, idle: make(chan struct{}), connecting: make(chan struct{}, 1),
	}
	if provider := options.TracerProvider; provider != nil {
		c.tracer = sendTracer{
			Tracer: provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL)),
			system: semconv.MessagingSystemKey.String(strings.ToLower(string(engine))),
		}
	}
	return c
}

// begin returns the context of a call, the producer, and a function that ends the call.
func (c *Client) begin(ctx context.Context) (context.Context, broker.Producer, func(), error) {
	if err := c.admit(); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	end := func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		if c.running == 0 && c.isClosed {
			close(c.idle)
		}
	}
	producer, err := c.connected(ctx)
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	return ctx, producer, end, nil
}

// admit counts a call as running, unless it must fail.
func (c *Client) admit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return errClosed
	}
	if c.check != nil {
		if err := c.check(); err != nil {
			return &broker.SendError{Failure: broker.ErrUnavailable, Err: err}
		}
	}
	c.running++
	return nil
}

var errClosed = &broker.SendError{Failure: broker.ErrClosed, Err: errors.New("the client is closed")}

// connected returns the producer. If a server has ended the connection for good, one call at a time connects again.
func (c *Client) connected(ctx context.Context) (broker.Producer, error) {
	producer := c.currentProducer()
	if !isEnded(producer) {
		return producer, nil
	}
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, &broker.SendError{Failure: broker.ErrUnavailable, Err: context.Cause(ctx)}
	}
	if producer = c.currentProducer(); !isEnded(producer) {
		return producer, nil
	}
	next, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isDisconnected {
		next.Disconnect()
		return nil, errClosed
	}
	c.producer = next
	return next, nil
}

func (c *Client) currentProducer() broker.Producer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.producer
}

func isEnded(producer broker.Producer) bool {
	ender, canEnd := producer.(broker.Ender)
	if !canEnd {
		return false
	}
	select {
	case <-ender.Ended():
		return true
	default:
		return false
	}
}

var errTimeout = errors.New("the broker did not respond within the timeout of the client")

// Close waits until calls have ended, and closes the connection. Later calls fail with ErrClosed. If ctx ends first, Close closes the
// connection at once and returns the cause of the end.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		if c.running == 0 {
			close(c.idle)
		}
	}
	c.mu.Unlock()
	defer c.disconnect()
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) disconnect() {
	c.mu.Lock()
	c.isDisconnected = true
	producer := c.producer
	c.mu.Unlock()
	producer.Disconnect()
}

// CancelDelayed removes a job that was sent with Delay or At and is not due yet, so that it never runs. It returns false if the queue has
// no such job: it is due, running, done or dead, or was never sent. JetStream does not cancel a job that is due within a second, and
// recognizes the ID of a canceled job for two minutes after it was sent.
//
// The error is an *Error. With ErrUnavailable, the job may be canceled.
func (c *Client) CancelDelayed(ctx context.Context, queue, id string) (canceled bool, err error) {
	defer func() { err = newOperationError("canceling a job of", queue, id, err) }()
	if err := broker.ValidateJobReference(queue, id); err != nil {
		return false, err
	}
	ctx, producer, end, err := c.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	return producer.CancelDelayed(ctx, queue, id)
}
