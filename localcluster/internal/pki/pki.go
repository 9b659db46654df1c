// Package pki creates the certificates, keys and kubeconfigs of one cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime of every certificate: longer than any local cluster exists.
const lifetime = 365 * 24 * time.Hour

// Authority signs the certificates of one cluster and writes them to Dir.
type Authority struct {
	Dir string

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// Leaf describes one certificate: a client's, or a server's if it has Hosts.
type Leaf struct {
	CommonName    string
	Organizations []string
	Hosts         []string // names and addresses
}

// NewAuthority creates dir and, in it, ca.crt and ca.key.
func NewAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{Dir: dir}
	template := newTemplate("localcluster-ca")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.certificate, a.key = template, key // its own issuer
	signed, _, err := a.sign("ca", template, key)
	if err != nil {
		return nil, err
	}
	a.pem = signed
	return a, nil
}

// Issue writes name.crt and name.key.
func (a *Authority) Issue(name string, leaf Leaf) error {
	_, _, err := a.issue(name, leaf)
	return err
}

// IssueKubeconfig writes name.crt and name.key and, for server,
// name.kubeconfig, which holds them both.
func (a *Authority) IssueKubeconfig(name string, leaf Leaf, server string) error {
	certificate, key, err := a.issue(name, leaf)
	if err != nil {
		return err
	}
	return a.write(name+".kubeconfig", kubeconfig(server, a.pem, certificate, key))
}

// IssueKeyPair writes name.key and its public half name.pub.
func (a *Authority) IssueKeyPair(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := a.write(name+".key", encode("EC PRIVATE KEY", private)); err != nil {
		return err
	}
	return a.write(name+".pub", encode("PUBLIC KEY", public))
}

func (a *Authority) issue(name string, leaf Leaf) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := newTemplate(leaf.CommonName)
	template.Subject.Organization = leaf.Organizations
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, host := range leaf.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(name, template, private)
}

// sign writes the certificate and its key, and returns both as PEM.
func (a *Authority) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey) (certificate, private []byte, err error) {
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing %s: %w", name, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certificate, private = encode("CERTIFICATE", der), encode("EC PRIVATE KEY", keyDER)
	if err := a.write(name+".crt", certificate); err != nil {
		return nil, nil, err
	}
	return certificate, private, a.write(name+".key", private)
}

func newTemplate(commonName string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: commonName},
		NotBefore: now.Add(-time.Hour), // a clock may be set back a little
		NotAfter:  now.Add(lifetime),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *Authority) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(a.Dir, name), content, 0o600)
}
