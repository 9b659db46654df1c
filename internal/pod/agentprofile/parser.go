package agentprofile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ParserName is the name of a parser.
type ParserName string

// The parsers.
const (
	ParserClaudeCode ParserName = "claude-code"
	ParserCodex      ParserName = "codex"
	ParserGemini     ParserName = "gemini"
	ParserOpenCode   ParserName = "opencode"
	// ParserEvents reads Events in the runner's own form, and ParserText takes each line as a part of the answer.
	ParserEvents ParserName = "events"
	ParserText   ParserName = "text"
)

// Parser turns the output of an agent into events.
type Parser interface {
	// Parse returns the events of a line; none for a line of an unknown type, because a newer agent may write it. An error means that
	// the line is not in the agent's format.
	Parse(line []byte) ([]Event, error)
	// Finished reports whether the agent has finished its work, although it has written no result.
	Finished() bool
	// End returns the remaining events at the end of the output.
	End() []Event
}

// writesResults is embedded in the parsers of agents that write a result, or of which only the end shows that they finished.
type writesResults struct{}

// Finished implements Parser.
func (writesResults) Finished() bool { return false }

var parsers = map[ParserName]func() Parser{
	ParserClaudeCode: func() Parser { return &claudeParser{} },
	ParserCodex:      func() Parser { return &codexParser{started: map[string]bool{}} },
	ParserGemini:     func() Parser { return &geminiParser{} },
	ParserOpenCode:   func() Parser { return &openCodeParser{} },
	ParserEvents:     func() Parser { return eventsParser{} },
	ParserText:       func() Parser { return &textParser{} },
}

// ParserNames returns the names of all parsers.
func ParserNames() []ParserName { return slices.Sorted(maps.Keys(parsers)) }

// NewParser returns a parser for the output of one process.
func (p *Profile) NewParser() Parser { return parsers[p.Parser]() }

func decodeLine(line []byte, into any) error {
	if trimmed := strings.TrimLeft(string(line[:min(len(line), 16)]), " \t"); !strings.HasPrefix(trimmed, "{") {
		return errors.New("the line is not a JSON object")
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("the line is malformed: %w", err)
	}
	return nil
}

// eventsParser reads events in the runner's own form.
type eventsParser struct{ writesResults }

// Parse implements Parser.
func (eventsParser) Parse(line []byte) ([]Event, error) {
	event := Event{}
	if err := decodeLine(line, &event); err != nil {
		return nil, err
	}
	if event.Type == "" {
		return nil, errors.New("the event has no type")
	}
	return []Event{event}, nil
}

// End implements Parser.
func (eventsParser) End() []Event { return nil }

// maxTextAnswer is the length of the end of a text that is the answer, in bytes.
const maxTextAnswer = 4096

type textParser struct {
	writesResults

	tail []byte
}

// Parse implements Parser.
func (p *textParser) Parse(line []byte) ([]Event, error) {
	p.tail = append(append(p.tail, line...), '\n')
	if excess := len(p.tail) - maxTextAnswer; excess > 0 {
		p.tail = append(p.tail[:0], p.tail[excess:]...)
	}
	return []Event{{Type: EventText, Text: string(line)}}, nil
}

// End implements Parser.
func (p *textParser) End() []Event {
	return []Event{{Type: EventResult, Text: strings.TrimSpace(strings.ToValidUTF8(string(p.tail), ""))}}
}
