package agentprofile

import "encoding/json"

// EventType is the type of an Event.
type EventType string

// The types of events. docs/reference/session-runner.md describes them.
const (
	// EventStarted has the conversation and the model.
	EventStarted EventType = "started"
	// EventText is a part of an answer, and EventThinking the model's reasoning before its answer.
	EventText     EventType = "text"
	EventThinking EventType = "thinking"
	// EventToolCall and EventToolResult are a call of a tool and its result.
	EventToolCall   EventType = "toolCall"
	EventToolResult EventType = "toolResult"
	// EventUsage has tokens and cost.
	EventUsage EventType = "usage"
	// EventRetry is a failed request to the model that the agent repeats.
	EventRetry EventType = "retry"
	// EventError is an error that need not end the agent. With Failed, the runner reports the one that ended the session.
	EventError EventType = "error"
	// EventResult is the end of the agent's work: the answer, or the reason of its failure.
	EventResult EventType = "result"
	// EventOutput is a line of output that is no event of the agent, and EventRunner a report of the runner itself.
	EventOutput EventType = "output"
	EventRunner EventType = "runner"
)

// Event is a report of an agent, in the same form for all agents.
type Event struct {
	Type EventType `json:"type"`
	// Conversation is the agent's identifier of its conversation.
	Conversation string `json:"conversation,omitempty"`
	Model        string `json:"model,omitempty"`
	Text         string `json:"text,omitempty"`
	Tool         *Tool  `json:"tool,omitempty"`
	Usage        *Usage `json:"usage,omitempty"`
	// CostUSD is the cost that the agent reports; nil if it reports none.
	CostUSD *float64 `json:"costUSD,omitempty"`
	// Total means that Usage and CostUSD are sums, and replace earlier values.
	Total bool `json:"total,omitempty"`
	// Failed means that the agent's work, or a call of a tool, failed.
	Failed bool `json:"failed,omitempty"`
	// Interrupted means that an answer of the model was cut off. The model's server counts its tokens, but does not report them.
	Interrupted bool `json:"interrupted,omitempty"`
	// Omitted is the number of bytes that were left out of a too long event.
	Omitted int64 `json:"omitted,omitempty"`
}

// Tool is a call of a tool.
type Tool struct {
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
}

// Usage contains numbers of tokens. InputTokens does not include tokens that were read from a cache or written into it.
type Usage struct {
	InputTokens      int64 `json:"inputTokens"`
	CacheReadTokens  int64 `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	OutputTokens     int64 `json:"outputTokens"`
}

// Add returns the sum of two usages.
func (u Usage) Add(other Usage) Usage {
	return Usage{
		InputTokens: u.InputTokens + other.InputTokens, CacheReadTokens: u.CacheReadTokens + other.CacheReadTokens,
		CacheWriteTokens: u.CacheWriteTokens + other.CacheWriteTokens, OutputTokens: u.OutputTokens + other.OutputTokens,
	}
}

// minus returns the difference of two usages, which is never negative.
func (u Usage) minus(other Usage) Usage {
	return Usage{
		InputTokens: max(0, u.InputTokens-other.InputTokens), CacheReadTokens: max(0, u.CacheReadTokens-other.CacheReadTokens),
		CacheWriteTokens: max(0, u.CacheWriteTokens-other.CacheWriteTokens), OutputTokens: max(0, u.OutputTokens-other.OutputTokens),
	}
}

// maxTokens is more than any session uses, and small enough that sums do not overflow.
const maxTokens = 1 << 48

// isValid reports whether all numbers can be numbers of tokens.
func (u Usage) isValid() bool {
	return min(u.InputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.OutputTokens) >= 0 &&
		max(u.InputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.OutputTokens) <= maxTokens
}
