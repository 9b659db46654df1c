package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Codec encodes values as payloads.
type Codec interface {
	// Encode returns the payload.
	Encode(value any) ([]byte, error)
	// ContentType is the media type of payloads, for the header Content-Type; empty for none.
	ContentType() string
}

// JSON encodes values with encoding/json.
type JSON struct{}

// Encode implements Codec.
func (JSON) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// ContentType implements Codec.
func (JSON) ContentType() string { return "application/json" }

// contentTypeHeader is the header with the media type of a payload.
const contentTypeHeader = "Content-Type"

// Kinder is a value whose type selects the handler of the job.
type Kinder interface {
	// Kind of the job. The option Kind takes precedence.
	Kind() string
}

// Enqueue encodes a value with the codec of the client, and sends it to a queue as the method Enqueue does. A value
// that is a Kinder sets the kind.
func Enqueue[T any](ctx context.Context, c *Client, queue string, value T, options ...Option) (Receipt, error) {
	return c.enqueue(ctx, queue, Encode(c, value, options...))
}

// Encode returns a job for EnqueueMany with a value, as Enqueue[T] sends it. If the value cannot be encoded, the
// result of the job has the error.
func Encode[T any](c *Client, value T, options ...Option) Job {
	payload, err := c.codec.Encode(value)
	if err != nil {
		err = &broker.SendError{Failure: broker.ErrInvalidJob, Field: "payload", Err: fmt.Errorf("cannot be encoded: %w", err)}
	}
	var defaults []Option
	if name := c.codec.ContentType(); name != "" {
		defaults = append(defaults, Header(contentTypeHeader, name))
	}
	if kinder, is := any(value).(Kinder); is {
		defaults = append(defaults, Kind(kinder.Kind()))
	}
	return Job{payload: payload, options: append(defaults, options...), err: err}
}
