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
	// TracerProvider makes a span of each call. By default there are no spans; jobs then have the trace context of the span in the context
	// of the call. For the global provider of OpenTelemetry, set otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
}

// Client sends jobs to the queues of one broker. Its methods are safe for concurrent use.
type Client struct {
	producer broker.Producer
	timeout  time.Duration
	codec    Codec
	tracer   sendTracer
	now      func() time.Time
	// check returns an error if calls must fail. Only tests set it.
	check func() error

	mu       sync.Mutex
	isClosed bool
	// running is the number of calls; idle is closed when it is 0 and the client is closed.
	running int
	idle    chan struct{}
}

// New connects to the broker. The connection reconnects by itself until Close. New fails with ErrInvalid, ErrUnauthorized or, if the broker
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
	engine, engineName, err := login.Connect(ctx, &options.Broker, name)
	if err != nil {
		return nil, newError("", "", broker.SendErrorOf(err))
	}
	producer, isProducer := engine.(broker.Producer)
	if !isProducer {
		engine.Disconnect()
		return nil, newError("", "", broker.UnsupportedField("broker.url", "names the engine %s, which cannot send jobs", engineName))
	}
	return newClient(&options, producer, engineName), nil
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
		now: time.Now, idle: make(chan struct{}),
	}
	if provider := options.TracerProvider; provider != nil {
		c.tracer = sendTracer{
			Tracer: provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL)),
			system: semconv.MessagingSystemKey.String(strings.ToLower(string(engine))),
		}
	}
	return c
}

// begin returns the context of a call, and a function that ends the call.
func (c *Client) begin(ctx context.Context) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, nil, &broker.SendError{Failure: broker.ErrClosed, Err: errors.New("the client is closed")}
	}
	if c.check != nil {
		if err := c.check(); err != nil {
			return nil, nil, &broker.SendError{Failure: broker.ErrUnavailable, Err: err}
		}
	}
	c.running++
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
		if c.running == 0 && c.isClosed {
			close(c.idle)
		}
	}, nil
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
	defer c.producer.Disconnect()
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	return c.producer.CancelDelayed(ctx, queue, id)
}
