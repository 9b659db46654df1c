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
	// maxHelloBytes bounds a ClientHello with the headers of its records. Those with keys for post-quantum
	// cryptography have about two kilobytes.
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

// isHelloComplete reports whether data begins with all records of a ClientHello. It returns an error if it cannot
// begin with one.
func isHelloComplete(data []byte) (bool, error) {
	var message []byte
	for rest := data; ; {
		if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 {
			return false, errNoTLS
		}
		if len(rest) < recordHeader {
			return false, nil
		}
		length := int(rest[3])<<8 | int(rest[4])
		if length == 0 || length > maxRecord {
			return false, errNoTLS
		}
		rest = rest[recordHeader:]
		message = append(message, rest[:min(length, len(rest))]...)
		if len(message) > 0 && message[0] != clientHello {
			return false, errNoTLS
		}
		if len(message) >= handshakeHeader {
			want := handshakeHeader + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
			if want > maxHelloBytes {
				return false, errHelloTooLong
			}
			if len(message) >= want {
				return true, nil
			}
		}
		if len(rest) < length {
			return false, nil
		}
		rest = rest[length:]
	}
}

// parseServerName returns the server name of a complete ClientHello. That of an encrypted ClientHello is the outer
// one, which the server of the encrypted name must be able to decrypt. The standard library parses it, which accepts
// only one name and no extension twice.
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

// helloConn is a connection from which a ClientHello can be read, and nothing else.
type helloConn struct{ io.Reader }

func (helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (helloConn) Close() error                     { return nil }
func (helloConn) LocalAddr() net.Addr              { return nil }
func (helloConn) RemoteAddr() net.Addr             { return nil }
func (helloConn) SetDeadline(time.Time) error      { return nil }
func (helloConn) SetReadDeadline(time.Time) error  { return nil }
func (helloConn) SetWriteDeadline(time.Time) error { return nil }
