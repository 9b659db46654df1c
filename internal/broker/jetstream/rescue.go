package jetstream

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// maxDeliveriesAdvisory is the server's word that it delivers a message no more.
type maxDeliveriesAdvisory struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
}

// Rescue makes dead letters of messages that the server has given up on by itself. Its
// word of each is kept among the dead letters until then, so none is missed.
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
		word, err := dead.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(maxDeliveriesSubject(queue)))
		if isNotFound(err) {
			return rescued, nil
		}
		if err != nil {
			return rescued, err
		}
		moved, err := e.buryAbandoned(ctx, stream, queue, word.Data)
		if err != nil {
			return rescued, err
		}
		rescued += moved
		if err := dead.DeleteMsg(ctx, word.Sequence); err != nil && !isNotFound(err) {
			return rescued, err
		}
	}
}

// buryAbandoned makes a dead letter of a message the server has given up on, if it is still there.
func (e *Engine) buryAbandoned(ctx context.Context, stream jetstream.Stream, queue string, word []byte) (int, error) {
	var w maxDeliveriesAdvisory
	if err := json.Unmarshal(word, &w); err != nil || w.Stream != streamName(queue) {
		return 0, nil //nolint:nilerr // somebody else's words: nothing is lost with them
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
		reason:   fmt.Sprintf("delivered %d times, and neither done nor failed", w.Deliveries),
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

// storeDeadLetter stores a dead letter.
func (e *Engine) storeDeadLetter(ctx context.Context, g *buriedMessage) error {
	letter, id := g.deadLetterMessage()
	if _, err := e.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id)); err != nil {
		return e.classifyError("keeping a dead letter of the queue "+g.queue, err)
	}
	return nil
}

var _ broker.DeadLetterQueue = (*deadLetterStream)(nil)
