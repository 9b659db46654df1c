package adminauth

import (
	"crypto/ed25519"
	"errors"
	"time"
)

// sessionTokenHeader is the only accepted header of a session's token: {"alg":"EdDSA","typ":"egress+jwt"}. It
// differs from tokenHeader, so that no worker accepts the token of a session, and no egress proxy that of a request.
const sessionTokenHeader = "eyJhbGciOiJFZERTQSIsInR5cCI6ImVncmVzcytqd3QifQ." //nolint:gosec // it is not secret

// Session is what the token of a session proves to the egress proxy of its namespace.
type Session struct {
	Namespace string `json:"aud"`
	Name      string `json:"sub"`
	UID       string `json:"uid"`
	// Runner is the name of its SessionRunner, which determines what the session may reach.
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

// VerifySession returns the session of a token that one of the keys signed for this namespace, and when the token
// expires. It returns an error if it has expired.
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
