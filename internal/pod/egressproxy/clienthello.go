package egressproxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// maxHelloBytes bounds a ClientHello with the headers of its records. A ClientHello with keys for post-quantum cryptography has
	// about two kilobytes.
	maxHelloBytes = 32 << 10

	recordHeader, maxRecord      = 5, 1 << 14
	recordHandshake              = 22
	handshakeHeader, clientHello = 4, 1
)

var (
	errNoTLS          = errors.New("only TLS connections are allowed, and the data does not begin with a TLS ClientHello")
	errHelloTooLong   = errors.New("the TLS ClientHello is too long")
	errHelloCaptured  = errors.New("captured")
	errHelloMalformed = errors.New("the TLS ClientHello is malformed")
)

// isHelloComplete reports whether data begins with all records of a ClientHello. It returns an error if data cannot begin with a
// ClientHello.
func isHelloComplete(data []byte) (bool, error) {
	var message []byte
	for {
		payload, rest, err := nextRecord(data)
		if err != nil {
			return false, err
		}
		message = append(message, payload...)
		if complete, err := isMessageComplete(message); complete || err != nil || rest == nil {
			return complete, err
		}
		data = rest
	}
}

// nextRecord returns the available payload of the first record in data, and the data after it; nil if the record is not complete.
func nextRecord(data []byte) (payload, rest []byte, err error) {
	if len(data) > 0 && data[0] != recordHandshake || len(data) > 1 && data[1] != 3 {
		return nil, nil, errNoTLS
	}
	if len(data) < recordHeader {
		return nil, nil, nil
	}
	length := int(data[3])<<8 | int(data[4])
	if length == 0 || length > maxRecord {
		return nil, nil, errNoTLS
	}
	if data = data[recordHeader:]; len(data) < length {
		return data, nil, nil
	}
	return data[:length], data[length:], nil
}

// isMessageComplete reports whether the payloads of records begin with a ClientHello.
func isMessageComplete(message []byte) (bool, error) {
	if len(message) > 0 && message[0] != clientHello {
		return false, errNoTLS
	}
	if len(message) < handshakeHeader {
		return false, nil
	}
	length := handshakeHeader + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
	if length > maxHelloBytes {
		return false, errHelloTooLong
	}
	return len(message) >= length, nil
}

// parseServerName returns the server name of a complete ClientHello. An encrypted ClientHello has the name of the outer ClientHello,
// whose server must be able to decrypt the inner name. The standard library accepts only one name and no extension twice.
func parseServerName(data []byte) (string, error) {
	name := ""
	server := tls.Server(helloConn{bytes.NewReader(data)}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errHelloCaptured
		},
	})
	if err := server.Handshake(); !errors.Is(err, errHelloCaptured) { //nolint:noctx // it reads from memory
		return "", errHelloMalformed
	}
	return name, nil
}

// helloConn is a connection from which only a ClientHello can be read.
type helloConn struct{ io.Reader }

// Write drops the alert at the end of the handshake.
func (helloConn) Write(p []byte) (int, error) { return len(p), nil }

// Close implements net.Conn.
func (helloConn) Close() error { return nil }

// LocalAddr implements net.Conn.
func (helloConn) LocalAddr() net.Addr { return nil }

// RemoteAddr implements net.Conn.
func (helloConn) RemoteAddr() net.Addr { return nil }

// SetDeadline implements net.Conn.
func (helloConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (helloConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (helloConn) SetWriteDeadline(time.Time) error { return nil }
