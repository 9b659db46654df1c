package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

// Turn is a part of the conversation with an agent. The script of the page shows its fields as text.
type Turn struct {
	// Kind is text, thinking, call, result, problem or note.
	Kind string `json:"kind"`
	Head string `json:"head,omitempty"`
	Text string `json:"text,omitempty"`
	// Lines are the changed lines of a file.
	Lines []DiffLine `json:"lines,omitempty"`
}

// NewTurn returns the turn of a line of a session's log; nil for an event that shows nothing.
func NewTurn(line string) *Turn {
	event, isEvent := eventOfLine([]byte(line))
	if !isEvent {
		return &Turn{Kind: "note", Text: CleanLogLine(line)}
	}
	turn := &Turn{Kind: "note", Text: cleanText(strings.TrimRight(event.Text, "\n"))}
	switch event.Type {
	case agentprofile.EventText:
		turn.Kind = "text"
	case agentprofile.EventThinking:
		turn.Kind = "thinking"
	case agentprofile.EventToolCall:
		turn.setCall(event.Tool)
	case agentprofile.EventToolResult:
		turn.Kind = "result"
		if event.Failed {
			turn.Kind = "problem"
		}
	case agentprofile.EventRetry:
		turn.Kind, turn.Head = "problem", "Retry"
	case agentprofile.EventError:
		turn.Kind, turn.Head = "problem", "Error"
	case agentprofile.EventResult:
		if !event.Failed { // its text repeats the agent's last text
			turn.Text = "Finished"
			break
		}
		turn.Kind, turn.Head = "problem", "Failed"
	case agentprofile.EventStarted:
		turn.Text = strings.TrimSpace("Started " + cleanLine(event.Model))
	case agentprofile.EventUsage:
		turn.Text = usageOf(&event)
	}
	if event.Omitted > 0 {
		turn.Text += fmt.Sprintf("\n… %d more bytes", event.Omitted)
	}
	if turn.Text == "" && turn.Head == "" {
		return nil
	}
	return turn
}

func (t *Turn) setCall(tool *agentprofile.Tool) {
	if tool == nil {
		return
	}
	t.Kind, t.Head = "call", cleanLine(tool.Name)
	edit, isEdit := render.EditOf(tool)
	if !isEdit {
		t.Head += " " + render.CallText(tool)
		return
	}
	change := FileChange{}
	change.add(&edit)
	t.Head, t.Lines = fmt.Sprintf("%s %s +%d −%d", t.Head, cleanLine(edit.Path), change.Added, change.Removed), change.Lines
}

// usageOf describes the tokens and the cost so far.
func usageOf(event *agentprofile.Event) string {
	if event.Usage == nil || !event.Total {
		return "" // the usage of single requests would be more than the work
	}
	text := fmt.Sprintf("%d tokens in, %d out", event.Usage.InputTokens+event.Usage.CacheReadTokens+event.Usage.CacheWriteTokens, event.Usage.OutputTokens)
	if event.CostUSD != nil {
		text += fmt.Sprintf(", $%.2f so far", *event.CostUSD)
	}
	return text
}

// eventOfLine returns the event of a line of a log, which begins with its run and attempt.
func eventOfLine(line []byte) (event agentprofile.Event, isEvent bool) {
	if start := strings.Index(string(line[:min(len(line), maxPrefixBytes)]), "{"); start > 0 && strings.HasSuffix(string(line[:start]), "| ") {
		line = line[start:]
	}
	isEvent = len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &event) == nil && event.Type != ""
	return event, isEvent
}

// maxPrefixBytes is more than the prefix of a line with its run and attempt.
const maxPrefixBytes = 80
