package jetstream

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// leasedMessage implements broker.Delivery.
type leasedMessage struct {
	*pullConsumer
	message  *nats.Msg
	metadata *nats.MsgMetadata
	// lastEntry is the number of the entry that was last recorded about this delivery; 0: no entry was recorded.
	lastEntry uint64
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
	if confirmed {
		return d.deliveryError("acknowledging", d.message.AckSync(nats.Context(ctx)))
	}
	return d.deliveryError("acknowledging", d.message.Ack())
}

// Retry implements broker.Delivery. The server stores no reason.
func (d *leasedMessage) Retry(_ context.Context, delay time.Duration, _ string) error {
	if delay <= 0 {
		return d.deliveryError("retrying", d.message.Nak())
	}
	return d.deliveryError("retrying", d.message.NakWithDelay(delay))
}

const releaseCountTTL = 7 * 24 * time.Hour

// Release implements broker.Delivery. The server counts each delivery, so Release first stores how many deliveries were no attempts.
func (d *leasedMessage) Release(ctx context.Context, delay time.Duration) error {
	returns, err := d.releaseCount(ctx)
	if err != nil {
		return d.deliveryError("releasing", err)
	}
	note := nats.NewMsg(d.writableSubject(storedKeySubject(d.queue, releaseCountPrefix+d.messageID())))
	note.Data = strconv.AppendInt(nil, int64(returns)+1, 10)
	if _, err := d.js.PublishMsg(ctx, note, jetstream.WithMsgTTL(releaseCountTTL)); err != nil {
		return d.deliveryError("releasing", err)
	}
	return d.Retry(ctx, delay, "")
}

const releaseCountPrefix = "returned."

// releaseCount returns how many earlier deliveries were no attempts.
func (d *leasedMessage) releaseCount(ctx context.Context) (int, error) {
	if d.metadata.NumDelivered <= 1 {
		return 0, nil
	}
	entry, err := d.bucket.Get(ctx, releaseCountPrefix+d.messageID())
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(entry.Value()))
}

// AttemptNumber implements broker.Delivery.
func (d *leasedMessage) AttemptNumber(ctx context.Context) (int, error) {
	returns, err := d.releaseCount(ctx)
	if err != nil {
		return 0, d.deliveryError("counting attempts of", err)
	}
	return max(1, int(d.metadata.NumDelivered)-returns), nil //nolint:gosec // a count of deliveries
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
