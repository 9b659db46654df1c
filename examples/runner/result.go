package main

import (
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"
)

// result is a runner's result. All fields are optional.
type result struct {
	Summary      string         `json:"summary,omitempty"`
	Usage        map[string]int `json:"usage,omitempty"`
	CostUSD      *float64       `json:"costUSD,omitempty"`
	SDKSessionID string         `json:"sdkSessionId,omitempty"` //nolint:tagliatelle // the operator's spelling
}

// marshalWithinLimit encodes a result, and shortens the summary until it fits: the kubelet would cut it off, which
// would leave invalid JSON.
func marshalWithinLimit(r *result, maxBytes int) string {
	const escaped = 6 // JSON may need up to six bytes for one
	for {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Sprintf(`{"summary":%q}`, err.Error())
		}
		if over := len(raw) - maxBytes; over > 0 && r.Summary != "" {
			r.Summary = truncateAtRune(r.Summary, (over+escaped-1)/escaped)
			continue
		}
		return string(raw)
	}
}

// truncateAtRune removes at least this many bytes from the end, and only whole characters.
func truncateAtRune(text string, bytes int) string {
	keep := max(0, len(text)-bytes)
	for keep > 0 && !utf8.RuneStart(text[keep]) {
		keep--
	}
	return text[:keep]
}

// writeResult writes into the existing file, which is mounted and cannot be replaced.
func writeResult(path, text string) error {
	const mode = 0o644
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
