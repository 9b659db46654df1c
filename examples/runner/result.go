package main

import (
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"
)

// maxResultBytes is how many bytes of a result the kubelet takes. Of a longer one it cuts off the
// end, and what is left is no JSON.
const maxResultBytes = 4096

// result is what a runner leaves. Each field may be left out.
type result struct {
	Summary      string         `json:"summary,omitempty"`
	Usage        map[string]int `json:"usage,omitempty"`
	CostUSD      *float64       `json:"costUSD,omitempty"`
	SDKSessionID string         `json:"sdkSessionId,omitempty"` //nolint:tagliatelle // the operator knows it by this name
}

// marshalWithinLimit writes a result in as many bytes as are taken: the summary gives way.
func marshalWithinLimit(r *result) string {
	const escaped = 6 // bytes that one may take in JSON
	for {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Sprintf(`{"summary":%q}`, err.Error())
		}
		if over := len(raw) - maxResultBytes; over > 0 && r.Summary != "" {
			r.Summary = truncateAtRune(r.Summary, (over+escaped-1)/escaped)
			continue
		}
		return string(raw)
	}
}

// truncateAtRune takes at least so many bytes off a text's end, and no character apart.
func truncateAtRune(text string, bytes int) string {
	keep := max(0, len(text)-bytes)
	for keep > 0 && !utf8.RuneStart(text[keep]) {
		keep--
	}
	return text[:keep]
}

// writeResult writes into the file that is there: it is mounted, and cannot be replaced.
func writeResult(path, text string) error {
	const mode = 0o644
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
