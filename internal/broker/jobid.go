package broker

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxReceivedIDBytes bounds the ID that a producer chose for a job. A longer one is ignored.
const maxReceivedIDBytes = 256

// IsValidJobID reports whether a text can be the ID of a job: it is not empty, not too long, and has no control
// characters, because IDs are written to logs and to environment variables.
func IsValidJobID(id string) bool {
	return id != "" && len(id) <= maxReceivedIDBytes && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

// HeaderValue returns the first value of a header in any spelling; empty if there is none. Of several spellings, it
// prefers that of name, then the first in the order of bytes.
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
