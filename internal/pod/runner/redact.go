package runner

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

const (
	redactedText = "[redacted]"
	// minSecretBytes prevents the replacement of short values, such as a number, everywhere.
	minSecretBytes = 8
)

// secretNameParts are parts of the names of variables whose values are secret.
var secretNameParts = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "HTTPS_PROXY"}

// redactor replaces the values of secret variables, which an agent can print.
type redactor struct{ secrets [][]byte }

func newRedactor(environment []string) *redactor {
	r := &redactor{}
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		upper := strings.ToUpper(name)
		if len(value) < minSecretBytes || !slices.ContainsFunc(secretNameParts, func(part string) bool { return strings.Contains(upper, part) }) {
			continue
		}
		r.secrets = append(r.secrets, []byte(value))
		if raw, err := json.Marshal(value); err == nil {
			if escaped := raw[1 : len(raw)-1]; string(escaped) != value { // as it is written in JSON
				r.secrets = append(r.secrets, escaped)
			}
		}
	}
	// The longest first: a secret may contain another secret.
	slices.SortFunc(r.secrets, func(a, b []byte) int { return len(b) - len(a) })
	return r
}

func (r *redactor) bytes(text []byte) []byte {
	for _, secret := range r.secrets {
		if bytes.Contains(text, secret) {
			text = bytes.ReplaceAll(text, secret, []byte(redactedText))
		}
	}
	return text
}

func (r *redactor) string(text string) string { return string(r.bytes([]byte(text))) }
