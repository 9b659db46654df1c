package modelserver

import (
	"fmt"
	"net/http"
	"strconv"
)

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

type openAIResponses struct{}

func (openAIResponses) failure(status int) string {
	return encode(map[string]any{"error": map[string]any{"type": "server_error", "code": strconv.Itoa(status), "message": fmt.Sprintf("scripted error %d", status)}})
}

func (openAIResponses) output(t *Turn) []map[string]any {
	var items []map[string]any
	if t.Thinking != "" {
		items = append(items, map[string]any{
			"type": "reasoning", "id": nextID("rs"), "summary": []any{map[string]any{"type": "summary_text", "text": t.Thinking}}, "content": []any{}, "encrypted_content": nil,
		})
	}
	if t.Text != "" {
		items = append(items, map[string]any{
			"type": "message", "id": nextID("msg"), "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": t.Text, "annotations": []any{}}},
		})
	}
	for _, call := range t.ToolCalls {
		id := nextID("call")
		items = append(items, map[string]any{"type": "function_call", "id": "fc_" + id, "call_id": id, "name": call.Name, "arguments": encode(call.Input), "status": "completed"})
	}
	return items
}

func (a openAIResponses) object(t *Turn, model string) any {
	u := t.Usage
	return map[string]any{
		"id": nextID("resp"), "object": "response", "created_at": now(), "status": "completed", "model": model, "output": a.output(t),
		"usage": map[string]any{
			"input_tokens": u.Input + u.CacheRead, "input_tokens_details": map[string]any{"cached_tokens": u.CacheRead},
			"output_tokens": u.Output, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": u.Input + u.CacheRead + u.Output,
		},
	}
}

func (a openAIResponses) events(t *Turn, model string) []event {
	var events []event
	add := func(name string, data map[string]any) {
		data["type"], data["sequence_number"] = name, len(events)
		events = append(events, event{name, encode(data)})
	}
	add("response.created", map[string]any{"response": map[string]any{"id": nextID("resp"), "object": "response", "status": "in_progress", "model": model, "created_at": now()}})
	for i, item := range a.output(t) {
		add("response.output_item.added", map[string]any{"output_index": i, "item": item})
		if item["type"] == "message" {
			add("response.output_text.delta", map[string]any{"output_index": i, "content_index": 0, "item_id": item["id"], "delta": t.Text})
		}
		add("response.output_item.done", map[string]any{"output_index": i, "item": item})
	}
	add("response.completed", map[string]any{"response": a.object(t, model)})
	return events
}

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
