package jetstream

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// leasedMessage implements broker.Delivery.
type leasedMessage struct {
	*pullConsumer
	message  *nats.Msg
	metadata *nats.MsgMetadata
	// lastEntry is the number of the entry that was last recorded about this delivery; 0: no entry was recorded.
	lastEntry uint64
	// history is nil until it was read. hasStoredHistory: the bucket has an entry of the message.
	history          atomic.Pointer[broker.History]
	hasStoredHistory atomic.Bool
}

// Message implements broker.Delivery.
func (d *leasedMessage) Message() *broker.Message {
	return &broker.Message{
		ID:       jobID(d.message.Header, d.queue, d.messageID()),
		Kind:     broker.HeaderValue(d.message.Header, broker.KindHeader),
		Payload:  d.message.Data,
		Headers:  producerHeaders(d.message.Header),
		Priority: d.priority,
		SentTime: d.metadata.Timestamp,
	}
}

// PendingCount implements broker.Delivery.
func (d *leasedMessage) PendingCount() uint64 { return d.metadata.NumPending }

// messageID is the sequence number of the message, which is not always the ID of its job.
func (d *leasedMessage) messageID() string { return strconv.FormatUint(d.metadata.Sequence.Stream, 10) }

var inProgressAck = []byte("+WPI")

// ExtendLease implements broker.Delivery.
func (d *leasedMessage) ExtendLease(ctx context.Context) error {
	_, err := d.nc.RequestWithContext(ctx, d.message.Reply, inProgressAck)
	return d.deliveryError("extending the lease of", err)
}

// Ack implements broker.Delivery.
func (d *leasedMessage) Ack(ctx context.Context, confirmed bool) error {
	var err error
	if confirmed {
		err = d.message.AckSync(nats.Context(ctx))
	} else {
		err = d.message.Ack()
	}
	if err == nil && d.hasStoredHistory.Load() {
		d.forgetHistory()
	}
	return d.deliveryError("acknowledging", err)
}

// Retry implements broker.Delivery. The server stores no reason.
func (d *leasedMessage) Retry(ctx context.Context, delay time.Duration, reason string) error {
	if err := d.countFailure(ctx, delay); err != nil {
		return err
	}
	return d.Lose(ctx, delay, reason)
}

// Lose implements broker.Delivery.
func (d *leasedMessage) Lose(_ context.Context, delay time.Duration, _ string) error {
	if delay <= 0 {
		return d.deliveryError("retrying", d.message.Nak())
	}
	return d.deliveryError("retrying", d.message.NakWithDelay(delay))
}

// Release implements broker.Delivery.
func (d *leasedMessage) Release(ctx context.Context, delay time.Duration) error {
	history, err := d.History(ctx)
	if err == nil {
		err = d.storeHistory(ctx, history.AfterRelease(), delay)
	}
	if err != nil {
		return d.deliveryError("releasing", err)
	}
	return d.Lose(ctx, delay, "")
}

// Bury implements broker.Delivery. It stores the dead letter before it acknowledges the message.
func (d *leasedMessage) Bury(ctx context.Context, reason string, attempts int) error {
	_, err := d.storeDeadLetter(ctx, &buriedMessage{
		queue: d.queue, priority: d.priority, sequence: d.metadata.Sequence.Stream,
		payload: d.message.Data, headers: d.message.Header, sent: d.metadata.Timestamp,
		reason: reason, attempts: attempts,
	})
	if err != nil {
		return err
	}
	return d.Ack(ctx, true)
}

// Abandon implements broker.Delivery. Only ExtendLease extends the lease.
func (*leasedMessage) Abandon() {}

// WasRemoved implements broker.Delivery.
func (d *leasedMessage) WasRemoved(ctx context.Context) (bool, error) {
	_, err := d.stream.GetMsg(ctx, d.metadata.Sequence.Stream)
	if isNotFound(err) {
		return true, nil
	}
	return false, d.deliveryError("looking up", err)
}

func (d *leasedMessage) deliveryError(operation string, err error) error {
	if err == nil || errors.Is(err, nats.ErrMsgAlreadyAckd) {
		return nil
	}
	return d.classifyError(operation+" message "+d.messageID()+" of the queue "+d.queue, err)
}
