// Package certtest issues TLS certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

// NewCertificate returns a PEM certificate for a server at 127.0.0.1 and for clients, and its key. The certificate is its own authority.
func NewCertificate(t testing.TB) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := ForAddress("127.0.0.1")
	require.NoError(t, err)
	return certificate, key
}

// ForAddress is NewCertificate for a server at another address.
func ForAddress(ip string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(ip)}, Subject: pkix.Name{CommonName: "test"},
	}
	rawCertificate, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(private)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rawCertificate})
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}), err
}
