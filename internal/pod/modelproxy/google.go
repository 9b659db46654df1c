package modelproxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

var google = &provider{
	url: "https://generativelanguage.googleapis.com", key: "GEMINI_API_KEY",
	parse: parseGoogle, meter: func() meter { return &googleMeter{} },
	authorize: func(header http.Header, key string) { header.Set("X-Goog-Api-Key", key) },
	token: func(header http.Header, query url.Values) string {
		return cmp.Or(header.Get("X-Goog-Api-Key"), query.Get("key"), bearer(header))
	},
	failure: func(status int, message string) any {
		kind := map[int]string{
			http.StatusBadRequest: "FAILED_PRECONDITION", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusNotFound: "NOT_FOUND",
			http.StatusTooManyRequests: "RESOURCE_EXHAUSTED",
		}[status]
		return map[string]any{"error": map[string]any{"code": status, "message": message, "status": cmp.Or(kind, "UNAVAILABLE")}}
	},
}

var (
	googleModels = regexp.MustCompile(`^/v1(beta)?/models(/[A-Za-z0-9._-]+)?$`)
	googleCalls  = regexp.MustCompile(`^/v1(?:beta)?/models/([A-Za-z0-9._-]+):(generateContent|streamGenerateContent|countTokens)$`)
	// googleFields are the fields of requests that the proxy can price, without underscores and in lower case: the API accepts several
	// spellings.
	googleFields = map[string]bool{
		"contents": true, "systeminstruction": true, "tools": true, "toolconfig": true, "safetysettings": true, "generationconfig": true,
		"cachedcontent": true, "labels": true, "model": true,
	}
	googleTools = map[string]bool{"functiondeclarations": true, "codeexecution": true, "urlcontext": true, "googlesearch": true}
)

func plainName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func parseGoogle(in *incoming) (*request, error) {
	call := googleCalls.FindStringSubmatch(in.path)
	switch {
	case in.method == http.MethodGet && googleModels.MatchString(in.path), in.method == http.MethodPost && call != nil && call[2] == "countTokens":
		return in.free(), nil
	case in.method != http.MethodPost || call == nil:
		return nil, nil
	}
	if err := in.read(); err != nil {
		return nil, err
	}
	var tools []map[string]json.RawMessage
	config := map[string]json.RawMessage{}
	_, e1 := in.field(&tools, "tools")
	_, e2 := in.field(&config, "generationConfig", "generation_config")
	if err := fieldError(e1, e2); err != nil {
		return nil, err
	}
	settings := &incoming{fields: config}
	var output, answers int64
	var modalities []string
	_, e3 := settings.field(&output, "maxOutputTokens", "max_output_tokens")
	_, e4 := settings.field(&answers, "candidateCount", "candidate_count")
	_, e5 := settings.field(&modalities, "responseModalities", "response_modalities")
	if err := fieldError(e3, e4, e5); err != nil {
		return nil, err
	}
	hosted, searches := false, int64(0)
	for _, tool := range tools {
		for name := range tool {
			plain := plainName(name)
			if in.limited && !googleTools[plain] {
				return nil, refuse("the tool " + name)
			}
			hosted = hosted || plain != "functiondeclarations"
			if plain == "googlesearch" {
				searches = maxSearches
			}
		}
	}
	if in.limited {
		for name := range in.fields {
			if !googleFields[plainName(name)] {
				return nil, refuse("the field " + name)
			}
		}
		for _, modality := range modalities {
			if !strings.EqualFold(modality, "text") {
				return nil, refuse("answers in the modality " + modality)
			}
		}
		if raw := strings.ToLower(string(in.body)); in.opaque && (strings.Contains(raw, "audio/") || strings.Contains(raw, "filedata") || strings.Contains(raw, "file_data")) {
			return nil, refuse("audio and files by reference")
		}
	}
	return in.metered(call[1], output, answers, searches, hosted)
}

type googleMeter struct {
	sum             Usage
	known, finished bool
	failed          bool
}

func (m *googleMeter) event(raw []byte) error {
	if trimmed := strings.TrimSpace(string(raw)); strings.HasPrefix(trimmed, "[") { // a stream without alt=sse
		var events []json.RawMessage
		if err := json.Unmarshal(raw, &events); err != nil {
			return err
		}
		for _, event := range events {
			if err := m.event(event); err != nil {
				return err
			}
		}
		return nil
	}
	var e struct {
		UsageMetadata *struct {
			PromptTokenCount        int64 `json:"promptTokenCount"`
			ToolUsePromptTokenCount int64 `json:"toolUsePromptTokenCount"`
			CachedContentTokenCount int64 `json:"cachedContentTokenCount"`
			CandidatesTokenCount    int64 `json:"candidatesTokenCount"`
			ThoughtsTokenCount      int64 `json:"thoughtsTokenCount"`
		} `json:"usageMetadata"`
		Candidates []struct {
			FinishReason      string `json:"finishReason"`
			GroundingMetadata *struct {
				WebSearchQueries []string `json:"webSearchQueries"`
			} `json:"groundingMetadata"`
		} `json:"candidates"`
		PromptFeedback struct {
			BlockReason string `json:"blockReason"`
		} `json:"promptFeedback"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	if e.UsageMetadata == nil && e.Candidates == nil && e.PromptFeedback.BlockReason == "" && e.Error == nil {
		return errors.New("an event without content")
	}
	m.failed = m.failed || e.Error != nil
	m.finished = m.finished || e.PromptFeedback.BlockReason != ""
	if u := e.UsageMetadata; u != nil {
		m.known = u.PromptTokenCount > 0
		next := Usage{
			Input: u.PromptTokenCount + u.ToolUsePromptTokenCount - u.CachedContentTokenCount, CacheRead: u.CachedContentTokenCount,
			Output: u.CandidatesTokenCount + u.ThoughtsTokenCount, Searches: m.sum.Searches,
		}
		m.failed = m.failed || !next.isValid()
		next.Output = max(next.Output, m.sum.Output)
		m.sum = next
	}
	for _, candidate := range e.Candidates {
		m.finished = m.finished || candidate.FinishReason != ""
		if g := candidate.GroundingMetadata; g != nil {
			m.sum.Searches = max(m.sum.Searches, 1, int64(len(g.WebSearchQueries)))
		}
	}
	return nil
}

func (m *googleMeter) usage() (u Usage, promptKnown, complete bool) {
	return m.sum, m.known && !m.failed, m.known && m.finished && !m.failed
}
