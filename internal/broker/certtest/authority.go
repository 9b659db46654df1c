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
)

// CertificateAuthority issues certificates.
type CertificateAuthority struct {
	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// CertificatePEM is the certificate of the authority.
	CertificatePEM []byte
}

// New creates a certificate authority.
func New(t testing.TB) *CertificateAuthority {
	t.Helper()
	a := &CertificateAuthority{t: t, certificate: template("authority")}
	a.certificate.IsCA, a.certificate.BasicConstraintsValid = true, true
	a.certificate.KeyUsage = x509.KeyUsageCertSign
	a.key = a.newKey()
	a.CertificatePEM = a.sign(a.certificate, &a.key.PublicKey)
	return a
}

// IssueCertificate returns a PEM certificate for 127.0.0.1 and for clients, and its key.
func (a *CertificateAuthority) IssueCertificate() (certificate, key []byte) {
	a.t.Helper()
	private := a.newKey()
	wanted := template("127.0.0.1")
	wanted.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	wanted.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.sign(wanted, &private.PublicKey), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func (a *CertificateAuthority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *CertificateAuthority) sign(wanted *x509.Certificate, key *ecdsa.PublicKey) []byte {
	a.t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, wanted, a.certificate, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}
