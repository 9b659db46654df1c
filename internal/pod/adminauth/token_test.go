package adminauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

var signedAt = time.Unix(1_800_000_000, 0)

func newKeys(t *testing.T) (*Keys, []ed25519.PublicKey) {
	t.Helper()
	text, err := NewPrivateKey()
	require.NoError(t, err)
	keys, err := ParsePrivateKey(text)
	require.NoError(t, err)
	return keys, ParsePublicKeys([]byte(keys.PublicKey()))
}

func TestATokenPermitsOneActionOnOneWorkerForAMinute(t *testing.T) {
	keys, public := newKeys(t)
	_, others := newKeys(t)
	request := Request{Worker: "team/mail-0", Action: ActionDrain}
	token, err := keys.Sign(request, signedAt)
	require.NoError(t, err)
	header, payload, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(payload, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	check := func(title, token string, keys []ed25519.PublicKey, want Request, after time.Duration, problem string) {
		t.Run(title, func(t *testing.T) {
			err := Verify(token, keys, want, signedAt.Add(after))
			require.True(t, (err == nil) == (problem == "") && (err == nil || strings.Contains(err.Error(), problem)), "error %v, want %q", err, problem)
		})
	}
	check("the token is valid at once", token, public, request, 0, "")
	check("a worker accepts several keys", token, append(others, public...), request, 0, "")
	check("clocks may differ by a minute", token, public, request, -time.Minute, "")
	check("two minutes later it has expired", token, public, request, 2*time.Minute+time.Second, "has expired")
	check("it is not valid long before", token, public, request, -time.Minute-time.Second, "valid for too long")
	check("it is not valid for another Pod", token, public, Request{Worker: "team/mail-1", Action: ActionDrain}, 0, "another worker")
	check("it is not valid for another namespace", token, public, Request{Worker: "other/mail-0", Action: ActionDrain}, 0, "another worker")
	check("it is not valid for another action", token, public, Request{Worker: "team/mail-0", Action: ActionResume}, 0, "another worker")
	check("another key did not sign it", token, others, request, 0, "not signed")
	check("a worker without keys accepts none", token, nil, request, 0, "not signed")
	check("a token cannot choose its algorithm", unsigned+"."+payload+".", public, request, 0, "EdDSA")
	check("a token without a signature", header+"."+payload+".", public, request, 0, "no signature")
	check("a signature of another length", header+"."+payload+"."+signature[:20], public, request, 0, "no signature")
	check("a token without a payload", header+"."+signature, public, request, 0, "EdDSA")
	check("an empty token", "", public, request, 0, "EdDSA")
	check("a long token is refused before it is verified", token[:len(token)-86]+strings.Repeat("x", maxTokenBytes), public, request, 0, "EdDSA")
}

// Workers in other languages verify tokens with the libraries of their language.
func TestATokenIsAJSONWebToken(t *testing.T) {
	keys, _ := newKeys(t)
	token, err := keys.Sign(Request{Worker: "team/mail-0", Action: ActionDrain}, signedAt)
	require.NoError(t, err)
	parts := strings.Split(token, ".")
	for i, want := range []string{`{"alg":"EdDSA","typ":"JWT"}`, `{"aud":"team/mail-0","sub":"drain","exp":1800000060}`} {
		got, err := base64.RawURLEncoding.DecodeString(parts[i])
		require.True(t, err == nil && string(got) == want, "part %d is %s, %v; want %s", i, got, err, want)
	}
}

func TestAPreStopSecretIsThatOfOneRevision(t *testing.T) {
	keys, _ := newKeys(t)
	others, _ := newKeys(t)
	secrets := map[string]bool{}
	for _, secret := range []string{
		PreStopSecret(keys.PreStopKey("a"), "1"), PreStopSecret(keys.PreStopKey("a"), "1"), PreStopSecret(keys.PreStopKey("a"), "2"),
		PreStopSecret(keys.PreStopKey("b"), "1"), PreStopSecret(others.PreStopKey("a"), "1"),
	} {
		require.Equal(t, 32, len(secret))
		secrets[secret] = true
	}
	require.Equal(t, 4, len(secrets))
}

func TestAnInvalidPrivateKeyIsReported(t *testing.T) {
	for title, text := range map[string]string{
		"no PEM":     "x",
		"no key":     "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"public key": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n",
	} {
		_, err := ParsePrivateKey([]byte(text))
		require.True(t, err != nil, "%s is accepted", title)
	}
}

func TestTokenOfASessionProvesOnlyThatSessionUntilItExpires(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	keys, public := newKeys(t)
	others, _ := newKeys(t)
	s := Session{Namespace: "team", Name: "fix", UID: "uid", Runner: "default"}
	sign := func(k *Keys, s Session, expires time.Time) string {
		token, err := k.SignSession(s, expires)
		require.NoError(t, err)
		return token
	}
	valid := sign(keys, s, now.Add(time.Hour))
	request, err := keys.Sign(Request{Worker: "team", Action: "fix"}, now)
	require.NoError(t, err)
	header, rest, _ := strings.Cut(valid, ".")
	foreign := s
	foreign.Namespace = "other"
	for title, test := range map[string]struct{ token, want string }{
		"valid":                          {valid, ""},
		"just expired, by another clock": {sign(keys, s, now.Add(-30*time.Second)), ""},
		"expired":                        {sign(keys, s, now.Add(-2*time.Minute)), "expired"},
		"for another namespace":          {sign(keys, foreign, now.Add(time.Hour)), "another namespace"},
		"by another operator":            {sign(others, s, now.Add(time.Hour)), "not signed"},
		"of a request to a worker":       {request, "not a JSON Web Token"},
		"changed":                        {header + ".A" + rest[1:], "not signed"},
		"without a signature":            {strings.Join(strings.Split(valid, ".")[:2], ".") + ".", "no signature"},
		"too long":                       {valid + strings.Repeat("A", maxTokenBytes), "not a JSON Web Token"},
		"empty":                          {"", "not a JSON Web Token"},
	} {
		t.Run(title, func(t *testing.T) {
			got, _, err := VerifySession(test.token, public, "team", now)
			if test.want == "" {
				require.True(t, err == nil && got == s, "%+v, %v", got, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.Equal(t, Session{}, got)
		})
	}
	require.Equal(t, valid, sign(keys, s, now.Add(time.Hour)))
	require.True(t, Verify(valid, public, Request{Worker: "team", Action: "fix"}, now) != nil, "a worker accepts the token of a session")
}
