package agentprofile

import (
	"encoding/json"
	"strings"
)

// geminiParser reads the format stream-json of Gemini CLI.
type geminiParser struct {
	writesResults

	// text is the current message, which arrives in parts, and answer the last complete message.
	text   strings.Builder
	answer string
}

// maxMessageBytes is the length from which a message is reported in parts.
const maxMessageBytes = 32 << 10

type geminiLine struct {
	Type       string          `json:"type"`
	SessionID  string          `json:"session_id"`
	Model      string          `json:"model"`
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	ToolName   string          `json:"tool_name"`
	ToolID     string          `json:"tool_id"`
	Parameters json.RawMessage `json:"parameters"`
	Status     string          `json:"status"`
	Output     json.RawMessage `json:"output"`
	Message    string          `json:"message"`
	Error      struct {
		Message string `json:"message"`
	} `json:"error"`
	Stats *struct {
		InputTokens  int64  `json:"input_tokens"`
		OutputTokens int64  `json:"output_tokens"`
		Cached       int64  `json:"cached"`
		Input        *int64 `json:"input"`
	} `json:"stats"`
}

// Parse implements Parser.
func (p *geminiParser) Parse(line []byte) ([]Event, error) {
	l := &geminiLine{}
	if err := decodeLine(line, l); err != nil {
		return nil, err
	}
	if l.Type == "message" {
		return p.messageEvents(l), nil
	}
	return append(p.flush(), p.events(l)...), nil
}

// End implements Parser.
func (p *geminiParser) End() []Event { return p.flush() }

func (p *geminiParser) messageEvents(l *geminiLine) []Event {
	if l.Role != "assistant" {
		return nil
	}
	p.text.WriteString(l.Content)
	if p.text.Len() > maxMessageBytes {
		return p.flush()
	}
	return nil
}

func (p *geminiParser) flush() []Event {
	if p.text.Len() == 0 {
		return nil
	}
	p.answer = p.text.String()
	p.text.Reset()
	return []Event{{Type: EventText, Text: p.answer}}
}

func (p *geminiParser) events(l *geminiLine) []Event {
	switch l.Type {
	case "init":
		return []Event{{Type: EventStarted, Conversation: l.SessionID, Model: l.Model}}
	case "tool_use":
		return []Event{{Type: EventToolCall, Tool: &Tool{ID: l.ToolID, Name: l.ToolName, Input: l.Parameters}}}
	case "tool_result":
		text := textOf(l.Output)
		if text == "" {
			text = l.Error.Message
		}
		return []Event{{Type: EventToolResult, Tool: &Tool{ID: l.ToolID}, Text: text, Failed: l.Status == "error"}}
	case "error":
		return []Event{{Type: EventError, Text: l.Message}}
	case "result":
		return p.resultEvents(l)
	}
	return nil
}

func (p *geminiParser) resultEvents(l *geminiLine) []Event {
	var events []Event
	if s := l.Stats; s != nil {
		input := max(0, s.InputTokens-s.Cached)
		if s.Input != nil {
			input = *s.Input
		}
		events = append(events, Event{Type: EventUsage, Total: true, Usage: &Usage{InputTokens: input, CacheReadTokens: s.Cached, OutputTokens: s.OutputTokens}})
	}
	if l.Status != "success" {
		return append(events, Event{Type: EventResult, Failed: true, Text: l.Error.Message})
	}
	return append(events, Event{Type: EventResult, Text: p.answer})
}
