package agentprofile

import (
	"encoding/json"
	"strings"
)

// codexParser reads the output of `codex exec --json`.
type codexParser struct {
	writesResults

	// started are the items whose call was reported.
	started map[string]bool
	answer  string
}

// maxStartedItems bounds the memory for items that never complete.
const maxStartedItems = 1000

type codexLine struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Message  string `json:"message"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage struct {
		InputTokens           int64 `json:"input_tokens"`
		CachedInputTokens     int64 `json:"cached_input_tokens"`
		CacheWriteInputTokens int64 `json:"cache_write_input_tokens"`
		OutputTokens          int64 `json:"output_tokens"`
	} `json:"usage"`
	Item codexItem `json:"item"`
}

type codexItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Text    string `json:"text"`
	Message string `json:"message"`
	Status  string `json:"status"`
	// of a command
	Command          string `json:"command"`
	AggregatedOutput string `json:"aggregated_output"`
	// of changed files, a call of an MCP server, and a search
	Changes   json.RawMessage `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    *struct {
		Content json.RawMessage `json:"content"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
	Query string          `json:"query"`
}

// Parse implements Parser.
func (p *codexParser) Parse(line []byte) ([]Event, error) {
	l := &codexLine{}
	if err := decodeLine(line, l); err != nil {
		return nil, err
	}
	switch l.Type {
	case "thread.started":
		return []Event{{Type: EventStarted, Conversation: l.ThreadID}}, nil
	case "item.started":
		return p.callEvents(&l.Item), nil
	case "item.completed":
		return p.itemEvents(&l.Item), nil
	case "turn.completed":
		u := l.Usage // its input includes cached tokens
		fresh := max(0, u.InputTokens-u.CachedInputTokens-u.CacheWriteInputTokens)
		return []Event{
			{Type: EventUsage, Total: true, Usage: &Usage{
				InputTokens: fresh, CacheReadTokens: u.CachedInputTokens, CacheWriteTokens: u.CacheWriteInputTokens, OutputTokens: u.OutputTokens,
			}},
			{Type: EventResult, Text: p.answer},
		}, nil
	case "turn.failed":
		return []Event{{Type: EventResult, Failed: true, Text: l.Error.Message}}, nil
	case "error":
		if strings.HasPrefix(l.Message, "Reconnecting") {
			// The sums at the end lack the tokens of an interrupted answer.
			return []Event{{Type: EventRetry, Text: l.Message, Interrupted: strings.Contains(l.Message, "stream disconnected")}}, nil
		}
		return []Event{{Type: EventError, Text: l.Message}}, nil
	}
	return nil, nil
}

// End implements Parser.
func (*codexParser) End() []Event { return nil }

// callEvents reports the call of a tool once.
func (p *codexParser) callEvents(item *codexItem) []Event {
	tool := item.tool()
	if tool == nil || p.started[item.ID] || len(p.started) >= maxStartedItems {
		return nil
	}
	p.started[item.ID] = true
	return []Event{{Type: EventToolCall, Tool: tool}}
}

// tool returns the call of a tool; nil for an item of another type.
func (item *codexItem) tool() *Tool {
	switch item.Type {
	case "command_execution":
		return &Tool{ID: item.ID, Name: "shell", Input: object("command", item.Command)}
	case "file_change":
		return &Tool{ID: item.ID, Name: "edit", Input: item.Changes}
	case "mcp_tool_call":
		return &Tool{ID: item.ID, Name: item.Server + "." + item.Tool, Input: item.Arguments}
	case "web_search":
		return &Tool{ID: item.ID, Name: "web_search", Input: object("query", item.Query)}
	}
	return nil
}

func (p *codexParser) itemEvents(item *codexItem) []Event {
	switch item.Type {
	case "agent_message":
		p.answer = item.Text
		return []Event{{Type: EventText, Text: item.Text}}
	case "reasoning":
		return []Event{{Type: EventThinking, Text: item.Text}}
	case "error":
		return []Event{{Type: EventError, Text: item.Message}}
	}
	if item.tool() == nil {
		return nil
	}
	events := p.callEvents(item)
	delete(p.started, item.ID)
	result := Event{Type: EventToolResult, Tool: &Tool{ID: item.ID}, Text: item.AggregatedOutput, Failed: item.Status == "failed"}
	if item.Result != nil {
		result.Text = textOf(item.Result.Content)
	}
	if result.Text == "" {
		result.Text = textOf(item.Error)
	}
	return append(events, result)
}

// object returns a JSON object with one field.
func object(name, value string) json.RawMessage {
	return json.RawMessage("{" + quote(name) + ":" + quote(value) + "}")
}
