package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// newKey returns a private key and its public key, as PEM.
func newKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	encodedPublic, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encodedPublic}), nil
}

var errKey = errors.New("it is not an ECDSA key on the curve P-256 without a passphrase, as PEM. " +
	"Create one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`")

// parseKey reads a private key in PKCS #8 or SEC 1. cosign and openssl verify signatures of ECDSA on P-256 with SHA-256
// without further options.
func parseKey(encoded []byte) (*ecdsa.PrivateKey, error) {
	// openssl writes the parameters of the curve before the key of SEC 1.
	for block, rest := pem.Decode(encoded); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", errKey, err)
		}
		if private, isECDSA := key.(*ecdsa.PrivateKey); isECDSA && private.Curve == elliptic.P256() {
			return private, nil
		}
	}
	return nil, errKey
}

// signature is that of a file.
type signature struct {
	digest    [sha256.Size]byte
	signature []byte
	// key is the public key, as DER.
	key []byte
}

// newSignature signs the content. The same key and content give the same signature (RFC 6979), as builds of a release
// are reproducible.
func newSignature(key *ecdsa.PrivateKey, content []byte) (*signature, error) {
	digest := sha256.Sum256(content)
	signed, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return &signature{digest: digest, signature: signed, key: public}, nil
}

// text returns the signature in base64.
func (s *signature) text() []byte {
	return []byte(base64.StdEncoding.EncodeToString(s.signature) + "\n")
}

// bundle returns the signature in the format of Sigstore, without an entry of a transparency log.
func (s *signature) bundle() ([]byte, error) {
	hint := sha256.Sum256(s.key)
	bundle, err := json.MarshalIndent(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": hint[:]}},
		"messageSignature": map[string]any{
			"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": s.digest[:]},
			"signature":     s.signature,
		},
	}, "", "  ")
	return append(bundle, '\n'), err
}
