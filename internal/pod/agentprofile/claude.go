package agentprofile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// claudeParser reads the format stream-json of Claude Code.
type claudeParser struct {
	writesResults

	lastMessage string
}

type claudeLine struct {
	Type         string        `json:"type"`
	Subtype      string        `json:"subtype"`
	SessionID    string        `json:"session_id"`
	Model        string        `json:"model"`
	Message      claudeMessage `json:"message"`
	Result       string        `json:"result"`
	IsError      bool          `json:"is_error"`
	TotalCostUSD *float64      `json:"total_cost_usd"`
	Usage        *claudeUsage  `json:"usage"`
	ModelUsage   map[string]struct {
		InputTokens              int64 `json:"inputTokens"`
		OutputTokens             int64 `json:"outputTokens"`
		CacheReadInputTokens     int64 `json:"cacheReadInputTokens"`
		CacheCreationInputTokens int64 `json:"cacheCreationInputTokens"`
	} `json:"modelUsage"`
	Errors      []json.RawMessage `json:"errors"`
	Attempt     int               `json:"attempt"`
	MaxRetries  int               `json:"max_retries"`
	ErrorStatus *int              `json:"error_status"`
	Error       json.RawMessage   `json:"error"`
}

type claudeUsage struct {
	InputTokens              int64 `json:"input_tokens"`
	OutputTokens             int64 `json:"output_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens"`
}

func (u *claudeUsage) usage() Usage {
	return Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadInputTokens, CacheWriteTokens: u.CacheCreationInputTokens}
}

type claudeMessage struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   *claudeUsage    `json:"usage"`
}

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// Parse implements Parser.
func (p *claudeParser) Parse(line []byte) ([]Event, error) {
	l := &claudeLine{}
	if err := decodeLine(line, l); err != nil {
		return nil, err
	}
	switch l.Type {
	case "system":
		return l.systemEvents(), nil
	case "assistant":
		events := l.Message.events()
		// The usage of a message is repeated in each of its parts, and counts output tokens only at the start of the message: the
		// result has the final numbers.
		if usage := l.Message.Usage; usage != nil && l.Message.ID != p.lastMessage {
			p.lastMessage = l.Message.ID
			events = append(events, Event{Type: EventUsage, Model: l.Message.Model, Usage: new(usage.usage())})
		}
		return events, nil
	case "user":
		return l.Message.events(), nil
	case "result":
		return l.resultEvents(), nil
	}
	return nil, nil
}

// End implements Parser.
func (*claudeParser) End() []Event { return nil }

func (l *claudeLine) systemEvents() []Event {
	switch l.Subtype {
	case "init":
		return []Event{{Type: EventStarted, Conversation: l.SessionID, Model: l.Model}}
	case "api_retry":
		text := fmt.Sprintf("attempt %d of %d", l.Attempt, l.MaxRetries)
		if l.ErrorStatus != nil {
			text += fmt.Sprintf(", status %d", *l.ErrorStatus)
		}
		// Without a status, the connection failed, maybe in the middle of an answer. The agent's sums then contain an estimate of its
		// tokens.
		return []Event{{Type: EventRetry, Text: text + ": " + textOf(l.Error), Interrupted: l.ErrorStatus == nil}}
	}
	return nil
}

func (m *claudeMessage) events() []Event {
	var blocks []claudeBlock
	if json.Unmarshal(m.Content, &blocks) != nil {
		return nil // the prompt, as text
	}
	var events []Event
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case "text":
			events = append(events, Event{Type: EventText, Text: b.Text})
		case "thinking":
			events = append(events, Event{Type: EventThinking, Text: b.Thinking})
		case "tool_use":
			events = append(events, Event{Type: EventToolCall, Tool: &Tool{ID: b.ID, Name: b.Name, Input: b.Input}})
		case "tool_result":
			events = append(events, Event{Type: EventToolResult, Tool: &Tool{ID: b.ToolUseID}, Text: textOf(b.Content), Failed: b.IsError})
		}
	}
	return events
}

func (l *claudeLine) resultEvents() []Event {
	usage := Event{Type: EventUsage, CostUSD: l.TotalCostUSD, Total: true}
	switch {
	case l.ModelUsage != nil: // of all models, including models of sub-agents
		sum := Usage{}
		for _, u := range l.ModelUsage {
			sum = sum.Add(Usage{
				InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
				CacheReadTokens: u.CacheReadInputTokens, CacheWriteTokens: u.CacheCreationInputTokens,
			})
		}
		usage.Usage = &sum
	case l.Usage != nil:
		usage.Usage = new(l.Usage.usage())
	}
	end := Event{Type: EventResult, Conversation: l.SessionID, Text: l.Result, Failed: l.IsError || l.Subtype != "success"}
	if end.Failed && end.Text == "" {
		reasons := []string{l.Subtype}
		for _, reason := range l.Errors {
			reasons = append(reasons, textOf(reason))
		}
		end.Text = strings.Join(reasons, ": ")
	}
	return []Event{usage, end}
}

// textOf returns the text of a JSON value that is a text, a list of blocks with text, or an error.
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &blocks) == nil {
		var texts []string
		for _, b := range blocks {
			if b.Text != "" || b.Type == "text" {
				texts = append(texts, b.Text)
				continue
			}
			texts = append(texts, "["+b.Type+"]")
		}
		return strings.Join(texts, "\n")
	}
	return string(raw)
}
