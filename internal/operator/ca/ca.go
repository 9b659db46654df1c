// Package ca is the certificate authority of the webhooks. The installation creates it once, in a Secret of the operator's namespace,
// and writes its certificate into the webhook configurations, which the operator cannot change. Each replica issues the certificate
// that it serves.
package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"
)

// The files of the authority, which are the keys of its Secret.
const (
	CertFile = "ca.crt"
	KeyFile  = "ca.key"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// servingLifetime is short, because nobody has to do anything when a serving certificate expires.
	servingLifetime = 90 * 24 * time.Hour
	// maxClockSkew is how far the clock of an API server may be behind.
	maxClockSkew = time.Hour
)

// New returns the certificate and the private key of an authority as PEM. It is valid for ten years.
func New(now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the key of the certificate authority: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"yardmaster"}, CommonName: "yardmaster-webhook-ca"},
		NotBefore: now.Add(-maxClockSkew), NotAfter: now.Add(authorityLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the certificate authority: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of the certificate authority: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// Serving is a certificate of a server.
type Serving struct {
	tls.Certificate

	// Renew is when the next certificate is to be issued.
	Renew time.Time
	// AuthorityExpires is when the authority has to have been replaced.
	AuthorityExpires time.Time
}

// Issue returns a certificate for a server with these DNS names, signed by the authority in these PEM files.
func Issue(authority, authorityKey []byte, hosts []string, now time.Time) (*Serving, error) {
	pair, err := tls.X509KeyPair(authority, authorityKey)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in %s and %s: %w", CertFile, KeyFile, err)
	}
	parent := pair.Leaf
	switch {
	case !parent.IsCA:
		return nil, fmt.Errorf("the certificate in %s is not that of a certificate authority", CertFile)
	case !now.Before(parent.NotAfter):
		return nil, fmt.Errorf("the certificate authority expired at %s", parent.NotAfter.Format(time.RFC3339))
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the key of the serving certificate: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: now.Add(-maxClockSkew), NotAfter: now.Add(servingLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(parent.NotAfter) {
		template.NotAfter = parent.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, pair.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("issuing the serving certificate: %w", err)
	}
	return &Serving{
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private},
		Renew:       now.Add(template.NotAfter.Sub(now) / 2), AuthorityExpires: parent.NotAfter,
	}, nil
}
