package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
)

// ErrorClass decides how callers handle an error.
type ErrorClass string

// The classes of errors.
const (
	// ClassUnreachable: the broker does not respond. A retry may succeed.
	ClassUnreachable ErrorClass = "Unreachable"
	// ClassUnauthorized: authentication, authorization or TLS verification failed. Someone has to change the credentials or the permissions.
	ClassUnauthorized ErrorClass = "Unauthorized"
	// ClassInvalid: the broker does not support the request. Someone has to change it.
	ClassInvalid ErrorClass = "Invalid"
	// ClassTooLarge: the broker stores no message of this size. Someone has to make it smaller, or raise the limit of the broker.
	ClassTooLarge ErrorClass = "TooLarge"
	ClassConflict ErrorClass = "Conflict" // the queue belongs to another owner
	ClassNotFound ErrorClass = "NotFound" // the queue, stream or key does not exist
	ClassUnknown  ErrorClass = "Unknown"  // none of the above; a retry may succeed
)

// ClassifiedError is an error with a class.
type ClassifiedError struct {
	Class ErrorClass
	Err   error
}

func (e *ClassifiedError) Error() string { return e.Err.Error() }

func (e *ClassifiedError) Unwrap() error { return e.Err }

// Errorf returns an error with a class.
func Errorf(class ErrorClass, format string, values ...any) error {
	return &ClassifiedError{Class: class, Err: fmt.Errorf(format, values...)}
}

// KeptDeadLetterError is why a dead letter stays after an operation that succeeded for the others.
type KeptDeadLetterError struct{ Err error }

func (e *KeptDeadLetterError) Error() string { return e.Err.Error() }

func (e *KeptDeadLetterError) Unwrap() error { return e.Err }

// ClassOf returns the class of an error, ClassUnknown if it has none.
func ClassOf(err error) ErrorClass {
	if errors.As(err, new(*OwnerConflictError)) {
		return ClassConflict
	}
	if failure := (*ClassifiedError)(nil); errors.As(err, &failure) {
		return failure.Class
	}
	return ClassUnknown
}

// ClassifyNetworkError adds the operation to an error's message, and the class of a network or TLS error, unless the error has a class.
func ClassifyNetworkError(operation string, err error) error {
	if err == nil {
		return nil
	}
	if failure := (*url.Error)(nil); errors.As(err, &failure) {
		err = failure.Err // its message has the URL, which may contain a password
	}
	if ClassOf(err) != ClassUnknown {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return Errorf(NetworkErrorClass(err), "%s: %w", operation, err)
}

// remoteAlertOp is the Op of a net.OpError for a TLS alert sent by the server.
const remoteAlertOp = "remote error"

// NetworkErrorClass returns the class of a network or TLS error, ClassUnknown for others.
func NetworkErrorClass(err error) ErrorClass {
	operation := (*net.OpError)(nil)
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)),
		errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.AlertError)),
		errors.As(err, new(tls.RecordHeaderError)), errors.As(err, &operation) && operation.Op == remoteAlertOp:
		return ClassUnauthorized
	case errors.As(err, new(net.Error)), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return ClassUnreachable
	}
	return ClassUnknown
}
