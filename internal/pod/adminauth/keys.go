// Package adminauth proves to a worker that a request to its admin API is from the operator, and to an egress proxy that a session
// may use it.
//
// The operator signs tokens with its private key. Workers and proxies have only the public key, so nobody who can read their
// configuration can create a token. A token for a worker names the worker, the action and its end, so a hostile worker cannot use it
// anywhere else.
package adminauth

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	privateKeyType, publicKeyType = "PRIVATE KEY", "PUBLIC KEY"
	// maxPublicKeys bounds the signatures that are verified for a request. Two keys are needed while a key is replaced.
	maxPublicKeys = 4
)

// PreStopHeader is the header in which the kubelet sends the PreStopSecret of a revision.
const PreStopHeader = "Yardmaster-Prestop-Secret"

// NewPrivateKey returns a new key in PEM form.
func NewPrivateKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyType, Bytes: der}), nil
}

// Keys are the keys of an operator.
type Keys struct {
	private ed25519.PrivateKey
	public  string
}

// ParsePrivateKey parses a key in the form of NewPrivateKey, which OpenSSL uses too.
func ParsePrivateKey(text []byte) (*Keys, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateKeyType {
		return nil, errors.New("it has no PEM block of type " + privateKeyType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("its PEM block is no PKCS #8 key") // the cause could contain a part of the key
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it has a key of type %T, not Ed25519", parsed)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, err
	}
	return &Keys{private, string(pem.EncodeToMemory(&pem.Block{Type: publicKeyType, Bytes: der}))}, nil
}

// PublicKey returns the public key in PEM form.
func (k *Keys) PublicKey() string { return k.public }

// ParsePublicKeys parses up to maxPublicKeys public keys in PEM form, and ignores everything else.
func ParsePublicKeys(text []byte) []ed25519.PublicKey {
	var keys []ed25519.PublicKey
	for len(keys) < maxPublicKeys {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if key, ok := parsed.(ed25519.PublicKey); err == nil && ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// PreStopKey returns the key from which PreStopSecret derives the secrets of a pool.
func (k *Keys) PreStopKey(poolUID string) []byte {
	return deriveKey(k.private.Seed(), "prestop "+poolUID)
}

// PreStopSecret returns the secret of a revision, with which the kubelet proves that it calls the preStop hook.
func PreStopSecret(preStopKey []byte, revision string) string {
	return hex.EncodeToString(deriveKey(preStopKey, revision)[:sha256.Size/2])
}

func deriveKey(key []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}
