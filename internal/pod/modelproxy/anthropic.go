package modelproxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

var anthropic = &provider{
	url: "https://api.anthropic.com", key: "ANTHROPIC_API_KEY",
	parse: parseAnthropic, meter: func() meter { return &anthropicMeter{} },
	authorize: func(header http.Header, key string) { header.Set("X-Api-Key", key) },
	token: func(header http.Header, _ url.Values) string {
		return cmp.Or(header.Get("X-Api-Key"), bearer(header))
	},
	failure: func(status int, message string) any {
		kind := map[int]string{http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error", http.StatusTooManyRequests: "rate_limit_error"}[status]
		if status >= http.StatusInternalServerError {
			kind = "api_error"
		}
		return map[string]any{"type": "error", "error": map[string]string{"type": cmp.Or(kind, "invalid_request_error"), "message": message}}
	},
}

// anthropicClientTools are the beginnings of types of tools that the agent runs.
var anthropicClientTools = []string{"custom", "bash_", "text_editor_", "computer_", "memory_"}

func parseAnthropic(in *incoming) (*request, error) {
	switch {
	case in.method == http.MethodGet && (in.path == "/v1/models" || strings.HasPrefix(in.path, "/v1/models/")), in.method == http.MethodPost && in.path == "/v1/messages/count_tokens":
		return in.free(), nil
	case in.method != http.MethodPost || in.path != "/v1/messages":
		return nil, nil
	}
	if err := in.read(); err != nil {
		return nil, err
	}
	var model, speed, geo string
	var output int64
	var tools []struct {
		Type    string `json:"type"`
		MaxUses int64  `json:"max_uses"`
	}
	var ignored, context json.RawMessage
	_, e1 := in.field(&model, "model")
	_, e2 := in.field(&output, "max_tokens")
	_, e3 := in.field(&tools, "tools")
	_, e4 := in.field(&speed, "speed")
	_, e5 := in.field(&geo, "inference_geo")
	_, e6 := in.field(&context, "context_management")
	if err := fieldError(e1, e2, e3, e4, e5, e6); err != nil {
		return nil, err
	}
	hosted, searches := strings.Contains(string(context), "compact"), int64(0)
	if in.limited {
		for _, name := range []string{"mcp_servers", "container"} {
			if found, _ := in.field(&ignored, name); found && string(ignored) != "[]" {
				return nil, refuse(name)
			}
		}
		switch {
		case speed != "" && speed != "standard":
			return nil, refuse("the speed " + speed)
		case geo != "" && geo != "global":
			return nil, refuse("inference_geo " + geo)
		}
	}
	for _, tool := range tools {
		switch {
		case tool.Type == "", hasPrefix(tool.Type, anthropicClientTools):
		case strings.HasPrefix(tool.Type, "web_search_"), strings.HasPrefix(tool.Type, "web_fetch_"), strings.HasPrefix(tool.Type, "tool_search_"):
			hosted, searches = true, searches+cmp.Or(max(tool.MaxUses, 0), maxSearches)
		case in.limited:
			return nil, refuse("the tool " + tool.Type)
		}
	}
	return in.metered(model, output, 1, searches, hosted)
}

func hasPrefix(text string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// anthropicUsage are counts, of which a stream repeats some with higher values.
type anthropicUsage struct {
	InputTokens              *int64 `json:"input_tokens"`
	CacheReadInputTokens     int64  `json:"cache_read_input_tokens"`
	CacheCreationInputTokens int64  `json:"cache_creation_input_tokens"`
	CacheCreation            struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	OutputTokens  *int64 `json:"output_tokens"`
	ServerToolUse struct {
		WebSearchRequests int64 `json:"web_search_requests"`
	} `json:"server_tool_use"`
	// Iterations are further prompts of the same request, such as for a compaction. The sums do not include them.
	Iterations []anthropicUsage `json:"iterations"`
}

type anthropicMeter struct {
	sum             Usage
	promptKnown     bool
	outputKnown     bool
	failed, stopped bool
}

func (m *anthropicMeter) event(raw []byte) error {
	var e struct {
		Type    string          `json:"type"`
		Usage   *anthropicUsage `json:"usage"`
		Message struct {
			Usage *anthropicUsage `json:"usage"`
		} `json:"message"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	switch e.Type {
	case "error":
		m.failed = true
	case "message_start":
		m.add(e.Message.Usage)
		m.outputKnown = false // it is only the beginning of the output
	case "message_delta":
		m.add(e.Usage)
	case "message_stop":
		m.stopped = true
	case "message":
		m.add(e.Usage)
		m.stopped = true
	case "":
		return errors.New("an event without a type")
	}
	return nil
}

func (m *anthropicMeter) add(u *anthropicUsage) {
	if u == nil {
		return
	}
	m.promptKnown, m.outputKnown = m.promptKnown || u.InputTokens != nil, m.outputKnown || u.OutputTokens != nil
	next := u.usage()
	if len(u.Iterations) > 0 {
		sum := Usage{Searches: next.Searches}
		for i := range u.Iterations {
			part := u.Iterations[i].usage()
			sum.Input, sum.CacheRead, sum.CacheWrite = sum.Input+part.Input, sum.CacheRead+part.CacheRead, sum.CacheWrite+part.CacheWrite
			sum.CacheWriteHour, sum.Output = sum.CacheWriteHour+part.CacheWriteHour, sum.Output+part.Output
		}
		next = sum
	}
	if !next.isValid() {
		m.failed = true
		return
	}
	s := &m.sum
	s.Input, s.CacheRead, s.CacheWrite, s.CacheWriteHour = max(s.Input, next.Input), max(s.CacheRead, next.CacheRead), max(s.CacheWrite, next.CacheWrite), max(s.CacheWriteHour, next.CacheWriteHour)
	s.Output, s.Searches = max(s.Output, next.Output), max(s.Searches, next.Searches)
}

func (u *anthropicUsage) usage() Usage {
	count := func(number *int64) int64 {
		if number == nil {
			return 0
		}
		return *number
	}
	hour := u.CacheCreation.Hour
	return Usage{
		Input: count(u.InputTokens), CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens - hour, CacheWriteHour: hour,
		Output: count(u.OutputTokens), Searches: u.ServerToolUse.WebSearchRequests,
	}
}

func (m *anthropicMeter) usage() (u Usage, promptKnown, complete bool) {
	return m.sum, m.promptKnown && !m.failed, m.promptKnown && m.outputKnown && m.stopped && !m.failed
}
