package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Classify gives an error its class, where a network's own errors tell it, and says what
// was being done. An error that has a class keeps it.
func Classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	if failure := (*url.Error)(nil); errors.As(err, &failure) {
		err = failure.Err // the rest of it is the URL, with what may be secret
	}
	if broker.ClassOf(err) != broker.ClassUnknown {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return broker.Errorf(ClassOf(err), "%s: %w", doing, err)
}

// remoteAlert is what package tls calls it when the other side says why it hangs up.
const remoteAlert = "remote error"

// ClassOf an error of a network.
func ClassOf(err error) broker.ErrorClass {
	var (
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
		header      tls.RecordHeaderError
		network     net.Error
		operation   *net.OpError
	)
	switch {
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &certificate), errors.As(err, &alert),
		errors.As(err, &header), errors.As(err, &operation) && operation.Op == remoteAlert:
		return broker.ClassUnauthorized // one side does not trust the other
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed):
		return broker.ClassUnreachable
	}
	return broker.ClassUnknown
}
