package jetstream

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// givenUp is the server's word that it delivers a message no more.
type givenUp struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
}

// Rescue makes dead letters of messages that the server has given up on by itself. Its
// word of each is kept among the dead letters until then, so none is missed.
func (e *Engine) Rescue(ctx context.Context, queue string) (int, error) {
	n, err := e.rescue(ctx, queue)
	return n, e.classify("rescuing messages of the queue "+queue, err)
}

func (e *Engine) rescue(ctx context.Context, queue string) (int, error) {
	stream, err := e.js.Stream(ctx, streamOf(queue))
	if err != nil {
		return 0, err
	}
	dead, err := e.js.Stream(ctx, deadStreamOf(queue))
	if err != nil {
		return 0, err
	}
	rescued := 0
	for {
		word, err := dead.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(givenUpSubject(queue)))
		if missing(err) {
			return rescued, nil
		}
		if err != nil {
			return rescued, err
		}
		moved, err := e.bury(ctx, stream, queue, word.Data)
		if err != nil {
			return rescued, err
		}
		rescued += moved
		if err := dead.DeleteMsg(ctx, word.Sequence); err != nil && !missing(err) {
			return rescued, err
		}
	}
}

// bury makes a dead letter of a message the server has given up on, if it is still there.
func (e *Engine) bury(ctx context.Context, stream jetstream.Stream, queue string, word []byte) (int, error) {
	var w givenUp
	if err := json.Unmarshal(word, &w); err != nil || w.Stream != streamOf(queue) {
		return 0, nil //nolint:nilerr // somebody else's words: nothing is lost with them
	}
	message, err := stream.GetMsg(ctx, w.Sequence)
	if missing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	g := grave{
		queue: queue, priority: priorityOf(message.Subject), sequence: message.Sequence,
		payload: message.Data, headers: message.Header, sent: message.Time,
		reason:   fmt.Sprintf("delivered %d times, and neither done nor failed", w.Deliveries),
		attempts: w.Deliveries,
	}
	if err := e.keep(ctx, &g); err != nil {
		return 0, err
	}
	if err := stream.DeleteMsg(ctx, w.Sequence); err != nil && !missing(err) {
		return 0, err
	}
	return 1, nil
}

// keep stores a dead letter.
func (e *Engine) keep(ctx context.Context, g *grave) error {
	letter, id := g.letter()
	if _, err := e.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id)); err != nil {
		return e.classify("keeping a dead letter of the queue "+g.queue, err)
	}
	return nil
}

var _ broker.DeadLetterQueue = (*cemetery)(nil)
