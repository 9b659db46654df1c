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
)

// maxErrorLength bounds the error in a header.
const maxErrorLength = 1024

// headerText makes text safe for a header: a line break would start another header.
func headerText(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxErrorLength {
		text = strings.ToValidUTF8(text[:maxErrorLength-len("…")], "") + "…"
	}
	return strings.TrimSpace(text)
}

// buriedMessage is the content of a dead letter.
type buriedMessage struct {
	queue, priority string
	sequence        uint64
	payload         []byte
	headers         nats.Header
	sent            time.Time
	reason          string
	attempts        int
}

// deadLetterMessage returns the message to store, and a message ID that makes burying
// idempotent.
func (g *buriedMessage) deadLetterMessage() (*nats.Msg, string) {
	origin := originOf(g.queue, strconv.FormatUint(g.sequence, 10))
	message := nats.NewMsg(deadLetterSubject(g.queue, g.priority))
	message.Data = g.payload
	maps.Copy(message.Header, copiedHeaders(g.headers))
	message.Header.Set(headerError, headerText(g.reason))
	message.Header.Set(headerAttempts, strconv.Itoa(g.attempts))
	message.Header.Set(headerOrigin, origin)
	message.Header.Set(headerSent, g.sent.UTC().Format(time.RFC3339Nano))
	return message, origin + "@" + strconv.FormatInt(g.sent.UnixNano(), 10)
}

// deadLetterFromMessage decodes a dead letter. Anyone may have written it: values that
// cannot be decoded stay empty.
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

// storeDeadLetter publishes a dead letter.
func (e *Engine) storeDeadLetter(ctx context.Context, g *buriedMessage) (*jetstream.PubAck, error) {
	letter, id := g.deadLetterMessage()
	stored, err := e.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id))
	return stored, e.classifyError("storing a dead letter of the queue "+g.queue, err)
}
