package modelserver

import "fmt"

// gemini is the API of Gemini.
type gemini struct{}

func (gemini) failure(status int) string {
	return encode(map[string]any{"error": map[string]any{"code": status, "message": fmt.Sprintf("scripted error %d", status), "status": "UNAVAILABLE"}})
}

func (gemini) response(t *Turn, model string, parts []any, last bool) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	response := map[string]any{"candidates": []any{candidate}, "modelVersion": model, "responseId": "scripted"}
	if last {
		candidate["finishReason"] = "STOP"
		response["usageMetadata"] = map[string]any{
			"promptTokenCount": t.Usage.Input + t.Usage.CacheRead, "cachedContentTokenCount": t.Usage.CacheRead,
			"candidatesTokenCount": t.Usage.Output, "totalTokenCount": t.Usage.Input + t.Usage.CacheRead + t.Usage.Output,
		}
	}
	return response
}

func (gemini) parts(t *Turn) []any {
	var parts []any
	if t.Thinking != "" {
		parts = append(parts, map[string]any{"text": t.Thinking, "thought": true})
	}
	if t.Text != "" {
		parts = append(parts, map[string]any{"text": t.Text})
	}
	for _, call := range t.ToolCalls {
		parts = append(parts, map[string]any{"functionCall": map[string]any{"name": call.Name, "args": call.Input}})
	}
	return parts
}

func (g gemini) object(t *Turn, model string) any { return g.response(t, model, g.parts(t), true) }

func (g gemini) events(t *Turn, model string) []event {
	parts := g.parts(t)
	var events []event
	for i, part := range parts {
		events = append(events, event{"", encode(g.response(t, model, []any{part}, i == len(parts)-1))})
	}
	return events
}
