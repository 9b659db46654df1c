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
	letter.Header.Set(headerError, headerText(g.reason))
	letter.Header.Set(headerAttempts, strconv.Itoa(g.attempts))
	letter.Header.Set(headerOrigin, origin)
	letter.Header.Set(headerSent, g.sent.UTC().Format(time.RFC3339Nano))
	stored, err := e.js.PublishMsg(ctx, letter, jetstream.WithMsgID(origin+"@"+strconv.FormatInt(g.sent.UnixNano(), 10)))
	return stored, e.classifyError("storing a dead letter of the queue "+g.queue, err)
}
