package jetstream

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

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

var _ broker.DeadLetterQueue = (*deadLetterStream)(nil)
