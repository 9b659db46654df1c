package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
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

// serverHeaderPrefix is the prefix of headers with instructions for the server. On a copy,
// they could make the server drop it as a duplicate, or delete other messages.
const serverHeaderPrefix = "Nats-"

// maxErrorLength bounds the error in a header.
const maxErrorLength = 1024

// producerHeaders returns the headers set by the producer.
func producerHeaders(headers nats.Header) nats.Header {
	if len(headers) == 0 {
		return nil
	}
	own := nats.Header{}
	for name, values := range headers {
		if !broker.HasPrefixFold(name, serverHeaderPrefix) && broker.IsProducerHeader(name) {
			own[name] = values
		}
	}
	return own
}

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

// maxDeliveriesAdvisory is published by the server when it stops delivering a message.
type maxDeliveriesAdvisory struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
}

// Rescue implements broker.Engine. The dead letter stream stores the advisories of the
// server until they are handled, so none is lost.
func (e *Engine) Rescue(ctx context.Context, queue string) (int, error) {
	n, err := e.rescueMessages(ctx, queue)
	return n, e.classifyError("rescuing messages of the queue "+queue, err)
}

func (e *Engine) rescueMessages(ctx context.Context, queue string) (int, error) {
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return 0, err
	}
	dead, err := e.js.Stream(ctx, deadStreamName(queue))
	if err != nil {
		return 0, err
	}
	rescued := 0
	for {
		advisory, err := dead.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(maxDeliveriesSubject(queue)))
		if isNotFound(err) {
			return rescued, nil
		}
		if err != nil {
			return rescued, err
		}
		moved, err := e.buryAbandoned(ctx, stream, queue, advisory.Data)
		if err != nil {
			return rescued, err
		}
		rescued += moved
		if err := dead.DeleteMsg(ctx, advisory.Sequence); err != nil && !isNotFound(err) {
			return rescued, err
		}
	}
}

// buryAbandoned makes a dead letter of the message in an advisory, if it still exists.
func (e *Engine) buryAbandoned(ctx context.Context, stream jetstream.Stream, queue string, advisory []byte) (int, error) {
	var w maxDeliveriesAdvisory
	if err := json.Unmarshal(advisory, &w); err != nil || w.Stream != streamName(queue) {
		return 0, nil //nolint:nilerr // not an advisory of this queue
	}
	message, err := stream.GetMsg(ctx, w.Sequence)
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	g := buriedMessage{
		queue: queue, priority: priorityFromSubject(message.Subject), sequence: message.Sequence,
		payload: message.Data, headers: message.Header, sent: message.Time,
		reason:   fmt.Sprintf("delivered %d times without a result", w.Deliveries),
		attempts: w.Deliveries,
	}
	if err := e.storeDeadLetter(ctx, &g); err != nil {
		return 0, err
	}
	if err := stream.DeleteMsg(ctx, w.Sequence); err != nil && !isNotFound(err) {
		return 0, err
	}
	return 1, nil
}

// storeDeadLetter publishes a dead letter.
func (e *Engine) storeDeadLetter(ctx context.Context, g *buriedMessage) error {
	letter, id := g.deadLetterMessage()
	if _, err := e.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id)); err != nil {
		return e.classifyError("storing a dead letter of the queue "+g.queue, err)
	}
	return nil
}
