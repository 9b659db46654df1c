package jetstream

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The server counts deliveries, and not how they ended. An entry of the bucket of the queue has the rest. Its value is the number of
// deliveries that were no attempts, as workers of versions before v0.2 know it, and its headers have the other numbers. A message that was
// never delivered twice has no entry, so the jobs of a healthy queue cost nothing.

const (
	historyPrefix = "returned."
	// historyTTL is how long an entry is kept after its message is due.
	historyTTL = 7 * 24 * time.Hour
	// forgottenTTL is how long the mark of a deleted entry is kept.
	forgottenTTL = time.Minute
)

// Headers of the entry.
const (
	headerFailed      = broker.HeaderPrefix + "Failed"
	headerLostStarted = broker.HeaderPrefix + "Lost-Started"
	headerLostAlone   = broker.HeaderPrefix + "Lost-Alone"
)

// History implements broker.Delivery.
func (d *leasedMessage) History(ctx context.Context) (broker.History, error) {
	if d.metadata.NumDelivered <= 1 {
		return broker.History{}, nil
	}
	if known := d.history.Load(); known != nil {
		return *known, nil
	}
	h := broker.History{}
	entry, err := d.readLast(ctx, bucketStreamName(d.queue), storedKeySubject(d.queue, historyPrefix+d.messageID()))
	if err != nil {
		return h, d.deliveryError("counting attempts of", err)
	}
	if entry != nil && !entry.isDeletedKey() {
		d.hasStoredHistory.Store(true)
		headers := entry.headers()
		h.Released = count(string(entry.Data))
		h.Failed, h.LostStarted, h.LostAlone = count(headers.Get(headerFailed)), count(headers.Get(headerLostStarted)), count(headers.Get(headerLostAlone))
	}
	h.Lost = max(0, int(d.metadata.NumDelivered)-1-h.Released-h.Failed) //nolint:gosec // a count of deliveries
	d.history.Store(&h)
	return h, nil
}

// count returns 0 for a text that is no number.
func count(text string) int {
	n, _ := strconv.Atoi(text)
	return max(n, 0)
}

// MarkStart implements broker.Delivery.
func (d *leasedMessage) MarkStart(ctx context.Context, alone bool) error {
	history, err := d.History(ctx)
	if err != nil {
		return err
	}
	return d.deliveryError("marking the start of", d.storeHistory(ctx, history.AfterStart(alone), 0))
}

// CountFailure implements broker.Delivery.
func (d *leasedMessage) CountFailure(ctx context.Context) error { return d.countFailure(ctx, 0) }

// countFailure counts a failure after which the message is delivered again after the delay.
func (d *leasedMessage) countFailure(ctx context.Context, delay time.Duration) error {
	history, err := d.History(ctx)
	if err != nil {
		return err
	}
	return d.deliveryError("counting attempts of", d.storeHistory(ctx, history.AfterFailure(), delay))
}

// storeHistory stores what the next delivery, which is due after the delay, should read. Each call replaces the entry of an earlier one for the same delivery, so requests
// can be repeated.
func (d *leasedMessage) storeHistory(ctx context.Context, h broker.History, delay time.Duration) error {
	entry := nats.NewMsg(d.writableSubject(storedKeySubject(d.queue, historyPrefix+d.messageID())))
	entry.Data = strconv.AppendInt(nil, int64(h.Released), 10)
	for name, n := range map[string]int{headerFailed: h.Failed, headerLostStarted: h.LostStarted, headerLostAlone: h.LostAlone} {
		if n > 0 {
			entry.Header.Set(name, strconv.Itoa(n))
		}
	}
	_, err := d.js.PublishMsg(ctx, entry, jetstream.WithMsgTTL(historyTTL+max(delay, 0)))
	if err == nil {
		d.hasStoredHistory.Store(true)
	}
	return err
}

// forgetHistory deletes the entry of a message that is settled. An entry that remains expires.
func (d *leasedMessage) forgetHistory() {
	mark := nats.NewMsg(d.writableSubject(storedKeySubject(d.queue, historyPrefix+d.messageID())))
	mark.Header.Set(keyOperationHeader, "PURGE")
	mark.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	mark.Header.Set(jetstream.MsgTTLHeader, forgottenTTL.String())
	_ = d.nc.PublishMsg(mark)
}
