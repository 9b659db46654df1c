package broker

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxIdentifierBytes bounds the ID that a producer chose for a job.
const maxIdentifierBytes = 256

// IsIdentifier reports whether a text can be the ID or the kind of a job: it has 1 to 256 bytes of UTF-8 and no control characters, because
// it is written to logs, headers and environment variables. Other IDs are ignored.
func IsIdentifier(id string) bool {
	return id != "" && len(id) <= maxIdentifierBytes && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

// HeaderValue returns the first value of a header in any spelling, or "". Of several spellings, it prefers the spelling of name, then the
// first in the order of bytes.
func HeaderValue(headers map[string][]string, name string) string {
	if values := headers[name]; len(values) > 0 {
		return values[0]
	}
	found, value := "", ""
	for key, values := range headers {
		if strings.EqualFold(key, name) && len(values) > 0 && (found == "" || key < found) {
			found, value = key, values[0]
		}
	}
	return value
}
