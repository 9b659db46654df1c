// Package modelserver is a server on loopback with as much of the APIs of Anthropic, OpenAI and Gemini as the command
// lines of agents need. It answers with a script instead of a model, and counts the tokens that it reported.
package modelserver

import "encoding/json"

// Turn is the answer to one request of an agent.
type Turn struct {
	// Thinking and Text are sent before the tool calls.
	Thinking, Text string
	ToolCalls      []ToolCall
	Usage          Usage
	// Status is an HTTP status other than 200 that is sent instead of the answer.
	Status int
	// Interrupted closes the connection in the middle of the answer.
	Interrupted bool
	// Hang leaves the request without an answer until the agent closes the connection.
	Hang bool
}

// ToolCall is a call of one of the agent's tools.
type ToolCall struct {
	Name  string
	Input map[string]any
}

// Usage are the tokens of a request. Input does not include those that were read from, or written into, a cache.
type Usage struct {
	Input, CacheRead, CacheWrite, Output int64
}

func (u *Usage) add(other Usage) {
	u.Input += other.Input
	u.CacheRead += other.CacheRead
	u.CacheWrite += other.CacheWrite
	u.Output += other.Output
}

func (t *Turn) isAnswer() bool { return t.Status == 0 && !t.Interrupted && !t.Hang }

func encode(value any) string {
	raw, err := json.Marshal(value)
	if err != nil { // only values that were decoded from JSON, or are strings and numbers
		panic(err)
	}
	return string(raw)
}
