package agentprofile

import "encoding/json"

// openCodeParser reads the output of `opencode run --format json`.
type openCodeParser struct {
	conversation, answer string
	failure              string
	finished             bool
}

type openCodeLine struct {
	Type      string `json:"type"`
	SessionID string `json:"sessionID"` //nolint:tagliatelle // the spelling of OpenCode
	Part      struct {
		Text   string   `json:"text"`
		Tool   string   `json:"tool"`
		CallID string   `json:"callID"` //nolint:tagliatelle // the spelling of OpenCode
		Reason string   `json:"reason"`
		Cost   *float64 `json:"cost"`
		Tokens *struct {
			Input     int64 `json:"input"`
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
		State struct {
			Status string          `json:"status"`
			Input  json.RawMessage `json:"input"`
			Output string          `json:"output"`
			Error  string          `json:"error"`
		} `json:"state"`
	} `json:"part"`
	Error struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
		} `json:"data"`
	} `json:"error"`
}

// Parse implements Parser.
func (p *openCodeParser) Parse(line []byte) ([]Event, error) {
	l := &openCodeLine{}
	if err := decodeLine(line, l); err != nil {
		return nil, err
	}
	var events []Event
	if l.SessionID != "" && p.conversation == "" {
		p.conversation = l.SessionID
		events = append(events, Event{Type: EventStarted, Conversation: l.SessionID})
	}
	return append(events, p.events(l)...), nil
}

// Finished implements Parser.
func (p *openCodeParser) Finished() bool { return p.finished }

// End implements Parser. OpenCode writes no result: its work is finished when a step ended without calls of tools.
func (p *openCodeParser) End() []Event {
	switch {
	case p.finished:
		return []Event{{Type: EventResult, Text: p.answer}}
	case p.failure != "":
		return []Event{{Type: EventResult, Failed: true, Text: p.failure}}
	}
	return nil
}

func (p *openCodeParser) events(l *openCodeLine) []Event {
	part := &l.Part
	switch l.Type {
	case "step_start":
		p.finished = false
	case "text":
		p.answer = part.Text
		return []Event{{Type: EventText, Text: part.Text}}
	case "reasoning":
		return []Event{{Type: EventThinking, Text: part.Text}}
	case "tool_use":
		text := part.State.Output
		if part.State.Error != "" {
			text = part.State.Error
		}
		return []Event{
			{Type: EventToolCall, Tool: &Tool{ID: part.CallID, Name: part.Tool, Input: part.State.Input}},
			{Type: EventToolResult, Tool: &Tool{ID: part.CallID}, Text: text, Failed: part.State.Status == "error"},
		}
	case "step_finish":
		p.finished = part.Reason != "tool-calls"
		if part.Tokens == nil {
			return nil
		}
		return []Event{{Type: EventUsage, CostUSD: part.Cost, Usage: &Usage{
			InputTokens: part.Tokens.Input, OutputTokens: part.Tokens.Output + part.Tokens.Reasoning,
			CacheReadTokens: part.Tokens.Cache.Read, CacheWriteTokens: part.Tokens.Cache.Write,
		}}}
	case "error":
		p.finished, p.failure = false, l.Error.Name+": "+l.Error.Data.Message
		return []Event{{Type: EventError, Text: p.failure}}
	}
	return nil
}
