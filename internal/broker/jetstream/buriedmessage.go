package jetstream

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Headers of a dead letter, in addition to those of its producer.
const (
	headerError    = broker.HeaderPrefix + "Error"
	headerAttempts = broker.HeaderPrefix + "Attempts"
	headerOrigin   = broker.HeaderPrefix + "Origin"
	headerSent     = broker.HeaderPrefix + "Sent"
	// headerTruncated has the number of bytes of the whole payload, of which the dead letter has the beginning.
	headerTruncated = broker.HeaderPrefix + "Truncated"
)

const (
	maxErrorLength = 1024
	// shortErrorLength is that of the error of a dead letter that is almost as large as the server accepts.
	shortErrorLength = 128
	// deadLetterBytes is how much larger a dead letter can be than its message: producers leave it free.
	deadLetterBytes = 2 << 10
)

// headerText makes text safe for a header: a line break would start another header.
func headerText(text string, maxLength int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxLength {
		text = strings.ToValidUTF8(text[:maxLength-len("…")], "") + "…"
	}
	return strings.TrimSpace(text)
}

type buriedMessage struct {
	queue, priority string
	sequence        uint64
	payload         []byte
	headers         nats.Header
	sent            time.Time
	reason          string
	attempts        int
}

// deadLetterFromMessage decodes a dead letter, which anyone may have written: invalid values stay empty.
func deadLetterFromMessage(message *jetstream.RawStreamMsg) broker.DeadLetter {
	sent, _ := time.Parse(time.RFC3339Nano, message.Header.Get(headerSent))
	attempts, _ := strconv.Atoi(message.Header.Get(headerAttempts))
	return broker.DeadLetter{
		ID:               message.Sequence,
		Payload:          message.Data,
		Headers:          producerHeaders(message.Header),
		Priority:         priorityFromSubject(message.Subject),
		Error:            message.Header.Get(headerError),
		Attempts:         attempts,
		MessageID:        message.Header.Get(headerOrigin),
		SentTime:         sent,
		DeadLetteredTime: message.Time,
	}
}

// storeDeadLetter publishes a dead letter. Its message ID makes burying idempotent.
func (e *Engine) storeDeadLetter(ctx context.Context, g *buriedMessage) (*jetstream.PubAck, error) {
	origin := streamName(g.queue) + "/" + strconv.FormatUint(g.sequence, 10)
	letter := nats.NewMsg(deadLetterSubject(g.queue, g.priority))
	letter.Data = g.payload
	maps.Copy(letter.Header, copiedHeaders(g.headers))
	own := nats.Header{
		headerError: {headerText(g.reason, maxErrorLength)}, headerAttempts: {strconv.Itoa(g.attempts)}, headerOrigin: {origin},
		headerSent:            {g.sent.UTC().Format(time.RFC3339Nano)},
		jetstream.MsgIDHeader: {origin + "@" + strconv.FormatInt(g.sent.UnixNano(), 10)},
	}
	maps.Copy(letter.Header, own)
	shrink(letter, own, e.nc.MaxPayload())
	stored, err := e.js.PublishMsg(ctx, letter)
	return stored, e.classifyError("storing a dead letter of the queue "+g.queue, err)
}

// shrink makes a dead letter with these headers of its own as small as the server accepts, at first by its error, then by the end of its payload, and at last by the
// headers of its producer. A message of other producers than this package can be too large for a dead letter, and a message that
// cannot become a dead letter would be delivered without end.
func shrink(letter *nats.Msg, own nats.Header, maxBytes int64) {
	if messageBytes(letter)-len(letter.Data) > maxHeaderBytes {
		own.Set(headerError, headerText("headers left out; "+own.Get(headerError), maxErrorLength))
		if id := letter.Header.Get(broker.JobIDHeader); id != "" {
			own.Set(broker.JobIDHeader, id)
		}
		letter.Header = own
	}
	over := func() int { return int(int64(messageBytes(letter)) - maxBytes) }
	if over() <= 0 {
		return
	}
	letter.Header.Set(headerError, headerText(own.Get(headerError), shortErrorLength))
	if over() <= 0 {
		return
	}
	if own.Get(headerTruncated) == "" {
		whole := strconv.Itoa(len(letter.Data))
		own.Set(headerTruncated, whole)
		own.Set(headerError, "payload truncated from "+whole+" bytes; "+own.Get(headerError))
	}
	own.Set(headerError, headerText(own.Get(headerError), shortErrorLength))
	maps.Copy(letter.Header, own)
	if over() > len(letter.Data) {
		letter.Header = own
	}
	letter.Data = letter.Data[:max(0, len(letter.Data)-max(0, over()))]
}

// messageBytes is the size of a message as the server counts it for its max_payload.
func messageBytes(message *nats.Msg) int {
	if len(message.Header) == 0 {
		return len(message.Data)
	}
	size := len("NATS/1.0\r\n") + len("\r\n") + len(message.Data)
	for name, values := range message.Header {
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return size
}
