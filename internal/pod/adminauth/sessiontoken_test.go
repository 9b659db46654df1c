package adminauth

import (
	"strings"
	"testing"
	"time"
)

func TestTokenOfASessionProvesOnlyThatSessionUntilItExpires(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	keys, public := newKeys(t)
	others, _ := newKeys(t)
	s := Session{Namespace: "team", Name: "fix", UID: "uid", Runner: "default"}
	sign := func(k *Keys, s Session, expires time.Time) string {
		token, err := k.SignSession(s, expires)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	valid := sign(keys, s, now.Add(time.Hour))
	request, err := keys.Sign(Request{Worker: "team", Action: "fix"}, now)
	if err != nil {
		t.Fatal(err)
	}
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
			switch {
			case test.want == "" && (err != nil || got != s):
				t.Errorf("%+v, %v", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || got != Session{}):
				t.Errorf("%+v, %v; want an error with %q", got, err, test.want)
			}
		})
	}
	if again := sign(keys, s, now.Add(time.Hour)); again != valid {
		t.Error("signing again gives another token")
	}
	if err := Verify(valid, public, Request{Worker: "team", Action: "fix"}, now); err == nil {
		t.Error("a worker accepts the token of a session")
	}
}
