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

// delivery is a message that a worker has under a lease.
type delivery struct {
	*lane
	message *nats.Msg
	facts   *nats.MsgMetadata
}

// Message is what was sent.
func (d *delivery) Message() *broker.Message {
	return &broker.Message{
		ID:       d.id(),
		Payload:  d.message.Data,
		Headers:  producerHeaders(d.message.Header),
		Priority: d.priority,
		SentTime: d.facts.Timestamp,
	}
}

// PendingCount is how many more of its priority waited when it was delivered.
func (d *delivery) PendingCount() uint64 { return d.facts.NumPending }

func (d *delivery) id() string { return strconv.FormatUint(d.facts.Sequence.Stream, 10) }

// inProgress is what a worker says to the server to renew its lease.
var inProgress = []byte("+WPI")

// ExtendLease starts the lease anew.
func (d *delivery) ExtendLease(ctx context.Context) error {
	_, err := d.nc.RequestWithContext(ctx, d.message.Reply, inProgress)
	return d.failed("renewing the lease", err)
}

// Ack removes the message from its queue.
func (d *delivery) Ack(ctx context.Context, confirmed bool) error {
	if confirmed {
		return d.failed("acknowledging", d.message.AckSync(nats.Context(ctx)))
	}
	return d.failed("acknowledging", d.message.Ack())
}

// Retry has it delivered again after that delay.
func (d *delivery) Retry(_ context.Context, delay time.Duration) error {
	if delay <= 0 {
		return d.failed("handing back", d.message.Nak())
	}
	return d.failed("handing back", d.message.NakWithDelay(delay))
}

// returnsKept is how long it is known that a delivery was no attempt.
const returnsKept = 7 * 24 * time.Hour

// Release has it delivered again as if it had never been here. The server counts each delivery, so this one is
// first noted down as no attempt.
func (d *delivery) Release(ctx context.Context, delay time.Duration) error {
	returns, err := d.returns(ctx)
	if err != nil {
		return d.failed("handing back unused", err)
	}
	note := nats.NewMsg("$KV." + bucketOf(d.queue) + "." + d.returnsKey())
	note.Data = strconv.AppendInt(nil, int64(returns)+1, 10)
	if _, err := d.js.PublishMsg(ctx, note, jetstream.WithMsgTTL(returnsKept)); err != nil {
		return d.failed("handing back unused", err)
	}
	return d.Retry(ctx, delay)
}

func (d *delivery) returnsKey() string { return "returned." + d.id() }

// returns is how many of the deliveries before were no attempts.
func (d *delivery) returns(ctx context.Context) (int, error) {
	if d.facts.NumDelivered <= 1 {
		return 0, nil
	}
	entry, err := d.bucket.Get(ctx, d.returnsKey())
	if missing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(entry.Value()))
}

// AttemptNumber counts how often it has been tried, this time included.
func (d *delivery) AttemptNumber(ctx context.Context) (int, error) {
	returns, err := d.returns(ctx)
	if err != nil {
		return 0, d.failed("counting attempts", err)
	}
	return max(1, int(d.facts.NumDelivered)-returns), nil //nolint:gosec // a count of deliveries
}

// Bury makes it a dead letter, and removes it from its queue, in this order.
func (d *delivery) Bury(ctx context.Context, reason string, attempts int) error {
	err := d.keep(ctx, &grave{
		queue: d.queue, priority: d.priority, sequence: d.facts.Sequence.Stream,
		payload: d.message.Data, headers: d.message.Header, sent: d.facts.Timestamp,
		reason: reason, attempts: attempts,
	})
	if err != nil {
		return err
	}
	return d.Ack(ctx, true)
}

// WasRemoved tells whether somebody else has removed it from its queue.
func (d *delivery) WasRemoved(ctx context.Context) (bool, error) {
	_, err := d.stream.GetMsg(ctx, d.facts.Sequence.Stream)
	if missing(err) {
		return true, nil
	}
	return false, d.failed("looking for it", err)
}

func (d *delivery) failed(doing string, err error) error {
	if err == nil || errors.Is(err, nats.ErrMsgAlreadyAckd) {
		return nil
	}
	return d.classify(doing+" message "+d.id()+" of the queue "+d.queue, err)
}
