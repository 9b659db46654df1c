package jetstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// classifyError adds the operation and a class to an error.
func (e *Engine) classifyError(operation string, err error) error {
	if err == nil {
		return nil
	}
	if classed := broker.ClassOf(err); classed != broker.ClassUnknown {
		return fmt.Errorf("%s: %w", operation, err)
	}
	class := errorClassOf(err)
	if class == broker.ClassUnreachable && e.nc != nil {
		if denied := e.lastServerError.Load(); denied != nil && time.Since(denied.at) < 2*dialTimeout &&
			errors.Is(denied.err, nats.ErrPermissionViolation) {
			return broker.Errorf(broker.ClassUnauthorized, "%s: %w", operation, denied.err)
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

func errorClassOf(err error) broker.ErrorClass {
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) {
		switch {
		case api.Code == http.StatusNotFound:
			return broker.ClassNotFound
		case api.Code == http.StatusServiceUnavailable && api.ErrorCode != jetstream.JSErrCodeJetStreamNotEnabled:
			return broker.ClassUnreachable
		default:
			return broker.ClassInvalid
		}
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound) {
		return broker.ClassNotFound
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return broker.ClassInvalid
	}
	if isUnauthorized(err) {
		return broker.ClassUnauthorized
	}
	if isUnreachable(err) {
		return broker.ClassUnreachable
	}
	return broker.ClassUnknown
}

// isUnauthorized reports a failure of authentication, authorization or TLS verification.
func isUnauthorized(err error) bool {
	for _, known := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrPermissionViolation, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var (
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
	)
	return errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &certificate) || errors.As(err, &alert)
}

func isUnreachable(err error) bool {
	for _, known := range []error{
		nats.ErrNoServers, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrStaleConnection, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrNoHeartbeat, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}

// isNotFound reports that an object does not exist.
func isNotFound(err error) bool { return err != nil && errorClassOf(err) == broker.ClassNotFound }
