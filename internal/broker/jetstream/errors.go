package jetstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// classifyError adds the operation and a class to an error, and conceals the parts that readers of the error may not see. The server
// has answered, because the serverDialer conceals earlier errors.
func (e *Engine) classifyError(operation string, err error) (classified error) {
	if err == nil {
		return nil
	}
	defer func() { classified = e.credentials.Conceal(classified, true) }()
	if broker.ClassOf(err) != broker.ClassUnknown {
		return fmt.Errorf("%s: %w", operation, err)
	}
	class := errorClassOf(err)
	if class == broker.ClassUnreachable && e.nc != nil {
		if cause := e.lastServerError.Load(); cause != nil && time.Since(cause.at) < 2*dialTimeout {
			switch {
			case errors.Is(cause.err, nats.ErrPermissionViolation):
				return broker.Errorf(broker.ClassUnauthorized, "%s: %w", operation, cause.err)
			case broker.ClassOf(cause.err) == broker.ClassUnreachable:
				return broker.Errorf(class, "%s: %w", operation, cause.err)
			}
		}
		if last := e.nc.LastError(); last != nil && !e.nc.IsConnected() {
			if errorClassOf(last) == broker.ClassUnauthorized {
				class = broker.ClassUnauthorized
			}
			err = fmt.Errorf("%w: %w", err, last)
		}
	}
	return broker.Errorf(class, "%s: %w", operation, err)
}

// errorsByClass are errors of the client library; errors of the server have a code.
var errorsByClass = []struct {
	class broker.ErrorClass
	errs  []error
}{
	{broker.ClassNotFound, []error{jetstream.ErrMsgNotFound, jetstream.ErrKeyNotFound, jetstream.ErrBucketNotFound}},
	{broker.ClassTooLarge, []error{nats.ErrMaxPayload}},
	{broker.ClassInvalid, []error{jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount}},
	{broker.ClassUnauthorized, []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrPermissionViolation, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
	}},
	{broker.ClassUnreachable, []error{
		nats.ErrNoServers, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrStaleConnection, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrNoHeartbeat,
	}},
}

func errorClassOf(err error) broker.ErrorClass {
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) {
		switch {
		case api.Code == http.StatusNotFound:
			return broker.ClassNotFound
		case api.Code == http.StatusServiceUnavailable && api.ErrorCode != jetstream.JSErrCodeJetStreamNotEnabled:
			return broker.ClassUnreachable
		case api.ErrorCode == errorCodeMessageTooLarge, api.ErrorCode == errorCodeHeaderTooLarge:
			return broker.ClassTooLarge
		default:
			return broker.ClassInvalid
		}
	}
	if class := broker.NetworkErrorClass(err); class != broker.ClassUnknown {
		return class
	}
	for _, row := range errorsByClass {
		if slices.ContainsFunc(row.errs, func(known error) bool { return errors.Is(err, known) }) {
			return row.class
		}
	}
	return broker.ClassUnknown
}

func isNotFound(err error) bool { return err != nil && errorClassOf(err) == broker.ClassNotFound }
