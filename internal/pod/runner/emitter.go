package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

// maxTextBytes bounds the text, and the input of a tool, in an event: people read the log of a container, and programs split lines
// that are too long.
const maxTextBytes = 16 << 10

// emitter writes events, one JSON object a line.
type emitter struct {
	mutex  sync.Mutex
	out    io.Writer
	redact *redactor
	now    func() time.Time
	// copy also gets the events, if it is set: a client of an interactive session.
	copy io.Writer
	// transcript also gets the events, if the SessionRunner has an archive.
	transcript io.Writer
}

type timedEvent struct {
	Time string `json:"time"`
	*agentprofile.Event
}

func (e *emitter) emit(event agentprofile.Event) {
	shorten(&event)
	raw, err := json.Marshal(timedEvent{Time: e.now().UTC().Format(time.RFC3339Nano), Event: &event})
	if err != nil { // the input of a tool is malformed, which is only possible in an agent's own events
		raw = fmt.Appendf(nil, `{"type":%q,"text":%q}`, agentprofile.EventError, err.Error())
	}
	raw = append(e.redact.bytes(raw), '\n')
	e.mutex.Lock()
	defer e.mutex.Unlock()
	// An error means that nobody reads the log, which must not end the session.
	_, _ = e.out.Write(raw)
	for _, also := range []io.Writer{e.transcript, e.copy} {
		if also != nil {
			_, _ = also.Write(raw)
		}
	}
}

func (e *emitter) report(format string, arguments ...any) {
	e.emit(agentprofile.Event{Type: agentprofile.EventRunner, Text: fmt.Sprintf(format, arguments...)})
}

// setCopy also sends events to a second writer; nil stops it.
func (e *emitter) setCopy(to io.Writer) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.copy = to
}

// setTranscript also sends events to the archive; nil stops it.
func (e *emitter) setTranscript(to io.Writer) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.transcript = to
}

func shorten(event *agentprofile.Event) {
	text := cut(event.Text, maxTextBytes)
	event.Omitted += int64(len(event.Text) - len(text))
	event.Text = strings.ToValidUTF8(text, "\uFFFD")
	if event.Tool != nil && len(event.Tool.Input) > maxTextBytes {
		tool := *event.Tool
		input := cut(string(tool.Input), maxTextBytes)
		event.Omitted += int64(len(tool.Input) - len(input))
		tool.Input = agentprofile.Quote(input) // as a text, since it is not JSON anymore
		event.Tool = &tool
	}
}

// cut returns at most this many bytes of a text, without splitting a character.
func cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}
