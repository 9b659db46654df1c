package modelproxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

var openAI = &provider{
	url: "https://api.openai.com", key: "OPENAI_API_KEY",
	parse: parseOpenAI, meter: func() meter { return &openAIMeter{} },
	authorize: func(header http.Header, key string) { header.Set("Authorization", "Bearer "+key) },
	token:     func(header http.Header, _ url.Values) string { return bearer(header) },
	failure: func(status int, message string) any {
		kind, code := "invalid_request_error", any(nil)
		switch status {
		case http.StatusBadRequest:
			code = "proxy_refused"
		case http.StatusUnauthorized:
			code = "invalid_api_key"
		case http.StatusTooManyRequests:
			kind = "requests"
		}
		if status >= http.StatusInternalServerError {
			kind = "server_error"
		}
		return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": code}}
	},
}

// openAIClientTools are the types of tools that the agent runs.
var openAIClientTools = map[string]bool{
	"function": true, "custom": true, "local_shell": true, "apply_patch": true, "computer_use_preview": true, "namespace": true,
}

func parseOpenAI(in *incoming) (*request, error) {
	isChat := in.path == "/v1/chat/completions"
	switch {
	case in.method == http.MethodGet && (in.path == "/v1/models" || strings.HasPrefix(in.path, "/v1/models/")):
		return in.free(), nil
	case in.method != http.MethodPost || !isChat && in.path != "/v1/responses" && in.path != "/v1/responses/compact":
		return nil, nil
	}
	if err := in.read(); err != nil {
		return nil, err
	}
	var model, tier string
	var stream, background bool
	var chatOutput, output, answers, calls int64
	var tools []struct {
		Type      string `json:"type"`
		Execution string `json:"execution"`
	}
	var ignored json.RawMessage
	_, e1 := in.field(&model, "model")
	_, e2 := in.field(&tier, "service_tier")
	_, e3 := in.field(&stream, "stream")
	_, e4 := in.field(&background, "background")
	_, e5 := in.field(&output, "max_output_tokens", "max_completion_tokens")
	_, e6 := in.field(&chatOutput, "max_tokens")
	_, e7 := in.field(&answers, "n")
	_, e8 := in.field(&tools, "tools")
	_, e9 := in.field(&calls, "max_tool_calls")
	if err := fieldError(e1, e2, e3, e4, e5, e6, e7, e8, e9); err != nil {
		return nil, err
	}
	if in.limited {
		for _, name := range []string{"web_search_options", "prompt", "audio"} {
			if found, _ := in.field(&ignored, name); found {
				return nil, refuse(name)
			}
		}
		switch {
		case background:
			return nil, refuse("a response in the background")
		case tier != "" && tier != "auto" && tier != "default" && tier != "flex":
			return nil, refuse("the service tier " + tier)
		}
	}
	hosted, searches := false, int64(0)
	for _, tool := range tools {
		switch {
		case openAIClientTools[tool.Type]:
		case tool.Type == "tool_search": // only the rounds of a hosted search cost something
			hosted = hosted || tool.Execution != "client"
		case tool.Type == "web_search":
			hosted, searches = true, cmp.Or(max(calls, 0), maxSearches)
		case in.limited:
			return nil, refuse("the tool " + tool.Type)
		}
	}
	if isChat && stream {
		if err := in.includeUsage(); err != nil {
			return nil, err
		}
	}
	return in.metered(model, cmp.Or(output, chatOutput), answers, searches, hosted)
}

// includeUsage requests the usage, which streams of Chat Completions have only on request.
func (in *incoming) includeUsage() error {
	options := map[string]json.RawMessage{}
	if _, err := in.field(&options, "stream_options"); err != nil {
		return err
	}
	options["include_usage"] = json.RawMessage("true")
	raw, err := json.Marshal(options)
	if err != nil {
		return err
	}
	in.fields["stream_options"] = raw
	in.body, err = json.Marshal(in.fields)
	return err
}

type openAIUsage struct {
	// of Responses
	InputTokens        *int64 `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens *int64 `json:"output_tokens"`
	// of Chat Completions
	PromptTokens        *int64 `json:"prompt_tokens"`
	PromptTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokens *int64 `json:"completion_tokens"`
}

type openAIResponse struct {
	Object string       `json:"object"`
	Status string       `json:"status"`
	Tier   string       `json:"service_tier"`
	Usage  *openAIUsage `json:"usage"`
	Output []struct {
		Type string `json:"type"`
	} `json:"output"`
}

type openAIMeter struct {
	sum              Usage
	complete, failed bool
}

func (m *openAIMeter) event(raw []byte) error {
	var e struct {
		openAIResponse

		Type     string          `json:"type"`
		Response *openAIResponse `json:"response"`
		Choices  json.RawMessage `json:"choices"`
		Error    json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	switch {
	case e.Type == "error":
		m.failed = true
	case e.Response != nil:
		if e.Type == "response.completed" || e.Type == "response.incomplete" || e.Type == "response.failed" {
			m.read(e.Response)
		}
	case e.Usage != nil: // a response as a whole, or the last part of a stream
		m.read(&e.openAIResponse)
	case e.Type == "" && e.Choices == nil && e.Object == "":
		return errors.New("an event without a type")
	}
	return nil
}

func (m *openAIMeter) read(r *openAIResponse) {
	u := r.Usage
	if u == nil || r.Status == "in_progress" || r.Status == "queued" || r.Tier == "priority" {
		m.failed = true
		return
	}
	input, output, cached := u.InputTokens, u.OutputTokens, u.InputTokensDetails.CachedTokens
	if input == nil {
		input, output, cached = u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens
	}
	if input == nil || output == nil {
		m.failed = true
		return
	}
	m.sum = Usage{Input: *input - cached, CacheRead: cached, Output: *output}
	for _, item := range r.Output {
		if item.Type == "web_search_call" {
			m.sum.Searches++
		}
	}
	m.complete = true
}

func (m *openAIMeter) usage() (u Usage, promptKnown, complete bool) {
	return m.sum, false, m.complete && !m.failed
}
