package adminauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	// tokenLifetime is longer than a request takes.
	tokenLifetime = time.Minute
	// maxClockDifference is how far the clocks of a worker and the operator may differ.
	maxClockDifference = time.Minute
	// maxTokenBytes bounds the input of decoding and verification. The names of a namespace and a Pod have at most 316 characters.
	maxTokenBytes = 1024
	// tokenHeader is the only accepted header of a token: {"alg":"EdDSA","typ":"JWT"}. A token cannot choose its algorithm.
	tokenHeader = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9." //nolint:gosec // it is not secret
)

// Actions that a token can permit.
const (
	ActionDrain  = "drain"
	ActionResume = "resume"
)

// Request is the action that a token permits.
type Request struct {
	// Worker is the namespace and the name of the worker's Pod, as in namespace/pod.
	Worker string `json:"aud"`
	Action string `json:"sub"`
}

// claims of a token, a JSON Web Token.
type claims struct {
	Request

	Expires int64 `json:"exp"`
}

// Sign returns a token for a request, which expires after tokenLifetime.
func (k *Keys) Sign(request Request, now time.Time) (string, error) {
	return k.sign(tokenHeader, claims{request, now.Add(tokenLifetime).Unix()})
}

func (k *Keys) sign(header string, payload any) (string, error) {
	raw, err := json.Marshal(payload)
	if err != nil {
		return "", err
	}
	signed := header + base64.RawURLEncoding.EncodeToString(raw)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, []byte(signed))), nil
}

// Verify returns an error unless one of the keys signed the token for the request, and the token has not expired.
func Verify(token string, keys []ed25519.PublicKey, want Request, now time.Time) error {
	var c claims
	if err := decodeSigned(token, tokenHeader, keys, "worker", &c); err != nil {
		return err
	}
	expires := time.Unix(c.Expires, 0)
	switch {
	case c.Request != want:
		return errors.New("the token is for another worker or action")
	case now.After(expires.Add(maxClockDifference)):
		return errors.New("the token has expired, or the clock of the operator is slow")
	case expires.After(now.Add(tokenLifetime + maxClockDifference)):
		return errors.New("the token is valid for too long, or the clock of the operator is fast")
	}
	return nil
}

// decodeSigned decodes the payload of a token with this header that one of the keys signed. The error about a wrong signature names
// the recipient.
func decodeSigned(token, header string, keys []ed25519.PublicKey, recipient string, payload any) error {
	signed, signature, err := splitToken(token, header)
	if err != nil {
		return err
	}
	isSigned := slices.ContainsFunc(keys, func(key ed25519.PublicKey) bool { return ed25519.Verify(key, []byte(signed), signature) })
	if !isSigned {
		return errors.New("the token is not signed by the operator of this " + recipient)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(signed[len(header):])
	if err != nil {
		return errors.New("the payload of the token is not base64url")
	}
	if err := json.Unmarshal(raw, payload); err != nil {
		return errors.New("the payload of the token is not JSON")
	}
	return nil
}

// splitToken returns the signed part of a token, and its signature.
func splitToken(token, header string) (signed string, signature []byte, err error) {
	i := strings.LastIndexByte(token, '.')
	if len(token) > maxTokenBytes || !strings.HasPrefix(token, header) || i < len(header) {
		return "", nil, errors.New("not a JSON Web Token with algorithm EdDSA")
	}
	signature, err = base64.RawURLEncoding.Strict().DecodeString(token[i+1:])
	if err != nil || len(signature) != ed25519.SignatureSize {
		return "", nil, errors.New("the token has no signature")
	}
	return token[:i], signature, nil
}

// sessionTokenHeader is the only accepted header of a session's token: {"alg":"EdDSA","typ":"egress+jwt"}. It differs from
// tokenHeader, so that no worker accepts the token of a session, and no egress proxy accepts the token of a request.
const sessionTokenHeader = "eyJhbGciOiJFZERTQSIsInR5cCI6ImVncmVzcytqd3QifQ." //nolint:gosec // it is not secret

// Session is the identity that a session's token proves to the egress proxy of its namespace.
type Session struct {
	Namespace string `json:"aud"`
	Name      string `json:"sub"`
	UID       string `json:"uid"`
	// Runner is the name of the session's SessionRunner, which determines the allowed hosts.
	Runner string `json:"run"`
}

type sessionClaims struct {
	Session

	Expires int64 `json:"exp"`
}

// SignSession returns a token for a session. The same arguments always give the same token.
func (k *Keys) SignSession(s Session, expires time.Time) (string, error) {
	return k.sign(sessionTokenHeader, sessionClaims{s, expires.Unix()})
}

// VerifySession returns the session of a token that one of the keys signed for this namespace, and when the token expires. An expired
// token is an error.
func VerifySession(token string, keys []ed25519.PublicKey, namespace string, now time.Time) (s Session, expires time.Time, err error) {
	var c sessionClaims
	if err := decodeSigned(token, sessionTokenHeader, keys, "proxy", &c); err != nil {
		return Session{}, time.Time{}, err
	}
	expires = time.Unix(c.Expires, 0)
	switch {
	case c.Namespace != namespace:
		return Session{}, time.Time{}, errors.New("the token is for another namespace")
	case now.After(expires.Add(maxClockDifference)):
		return Session{}, time.Time{}, errors.New("the token has expired")
	}
	return c.Session, expires, nil
}
