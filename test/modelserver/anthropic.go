package modelserver

import (
	"fmt"
	"net/http"
)

// anthropicMessages is the Messages API of Anthropic.
type anthropicMessages struct{}

func (anthropicMessages) failure(status int) string {
	kind := map[int]string{http.StatusTooManyRequests: "rate_limit_error", http.StatusUnauthorized: "authentication_error"}[status]
	if kind == "" {
		kind = "api_error"
	}
	return encode(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": fmt.Sprintf("scripted error %d", status)}})
}

func anthropicUsage(u Usage) map[string]any {
	return map[string]any{
		"input_tokens": u.Input, "cache_creation_input_tokens": u.CacheWrite, "cache_read_input_tokens": u.CacheRead, "output_tokens": u.Output,
	}
}

// blocks returns the content of the answer.
func (anthropicMessages) blocks(t *Turn) []map[string]any {
	var blocks []map[string]any
	if t.Thinking != "" {
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": t.Thinking, "signature": "c2lnbmVk"})
	}
	if t.Text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": t.Text})
	}
	for _, call := range t.ToolCalls {
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": nextID("toolu"), "name": call.Name, "input": call.Input})
	}
	return blocks
}

func (anthropicMessages) message(t *Turn, model string, content any) map[string]any {
	return map[string]any{
		"id": nextID("msg"), "type": "message", "role": "assistant", "model": model, "content": content,
		"stop_reason": anthropicStop(t), "stop_sequence": nil, "usage": anthropicUsage(t.Usage),
	}
}

func anthropicStop(t *Turn) string {
	if len(t.ToolCalls) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func (a anthropicMessages) object(t *Turn, model string) any { return a.message(t, model, a.blocks(t)) }

func (a anthropicMessages) events(t *Turn, model string) []event {
	start := a.message(t, model, []any{})
	usage := t.Usage
	usage.Output = 1
	start["usage"], start["stop_reason"] = anthropicUsage(usage), nil
	var events []event
	add := func(name string, data map[string]any) {
		data["type"] = name
		events = append(events, event{name, encode(data)})
	}
	add("message_start", map[string]any{"message": start})
	for i, block := range a.blocks(t) {
		var delta map[string]any
		switch block["type"] {
		case "thinking":
			delta = map[string]any{"type": "thinking_delta", "thinking": block["thinking"]}
			block["thinking"], block["signature"] = "", ""
		case "text":
			delta = map[string]any{"type": "text_delta", "text": block["text"]}
			block["text"] = ""
		default:
			delta = map[string]any{"type": "input_json_delta", "partial_json": encode(block["input"])}
			block["input"] = map[string]any{}
		}
		add("content_block_start", map[string]any{"index": i, "content_block": block})
		add("content_block_delta", map[string]any{"index": i, "delta": delta})
		if block["type"] == "thinking" {
			add("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": "signature_delta", "signature": "c2lnbmVk"}})
		}
		add("content_block_stop", map[string]any{"index": i})
	}
	add("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": anthropicStop(t), "stop_sequence": nil}, "usage": anthropicUsage(t.Usage),
	})
	add("message_stop", map[string]any{})
	return events
}
