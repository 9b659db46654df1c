package jetstream

import (
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The headers of a dead letter, beside those its producer gave it.
const (
	headerPrefix   = "Yardmaster-"
	headerError    = headerPrefix + "Error"
	headerAttempts = headerPrefix + "Attempts"
	headerOrigin   = headerPrefix + "Origin"
	headerSent     = headerPrefix + "Sent"
)

// serverHeaderPrefix is that of headers that tell the server what to do with a message. Copied
// to another message they would have it dropped as a duplicate, or others removed.
const serverHeaderPrefix = "Nats-"

// maxErrorLength bounds the text of an error in a header.
const maxErrorLength = 1024

// producerHeaders are those that the message's producer gave it.
func producerHeaders(headers nats.Header) nats.Header {
	if len(headers) == 0 {
		return nil
	}
	own := nats.Header{}
	for name, values := range headers {
		if !hasPrefixFold(name, serverHeaderPrefix) && !hasPrefixFold(name, headerPrefix) {
			own[name] = values
		}
	}
	return own
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// headerText makes any text one that a header can hold: a line break in it would begin
// another header.
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

// buriedMessage is what a dead letter is made of.
type buriedMessage struct {
	queue, priority string
	sequence        uint64
	payload         []byte
	headers         nats.Header
	sent            time.Time
	reason          string
	attempts        int
}

// deadLetterMessage is the message that is kept. Its identity is that of the message it was, so
// that burying it again changes nothing.
func (g *buriedMessage) deadLetterMessage() (*nats.Msg, string) {
	origin := streamName(g.queue) + "/" + strconv.FormatUint(g.sequence, 10)
	message := nats.NewMsg(deadLetterSubject(g.queue, g.priority))
	message.Data = g.payload
	maps.Copy(message.Header, producerHeaders(g.headers))
	message.Header.Set(headerError, headerText(g.reason))
	message.Header.Set(headerAttempts, strconv.Itoa(g.attempts))
	message.Header.Set(headerOrigin, origin)
	message.Header.Set(headerSent, g.sent.UTC().Format(time.RFC3339Nano))
	return message, origin + "@" + strconv.FormatInt(g.sent.UnixNano(), 10)
}

// deadLetterFromMessage reads a dead letter. Who wrote it may be anybody: what cannot be read is left
// empty.
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
