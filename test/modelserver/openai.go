package modelserver

import (
	"fmt"
	"strconv"
)

// openAIResponses is the Responses API of OpenAI.
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
