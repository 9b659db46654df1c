package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
)

// clockMargin is how much the clocks of the servers of a cluster may differ.
const clockMargin = time.Second

// CancelDelayed implements broker.Producer. While a server makes a message ready, clients can still delete its schedule. So the
// message is canceled only if, after the deletion, the server's clock has not reached the time of the message.
func (e *Engine) CancelDelayed(ctx context.Context, queue, id string) (bool, error) {
	sequence, err := e.cancelDelayed(ctx, queue, id)
	canceled := sequence > 0
	if errors.As(err, new(*broker.SendError)) {
		return canceled, err
	}
	return canceled, broker.SendErrorOf(e.classifyError("canceling a job of the queue "+queue, err))
}

// cancelDelayed returns the sequence number of the removed message; 0: none was removed.
func (e *Engine) cancelDelayed(ctx context.Context, queue, id string) (uint64, error) {
	stream, err := e.js.Stream(ctx, delayedStreamName(queue))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, e.requireQueue(ctx, queue)
	}
	if err != nil {
		return 0, err
	}
	found, due, err := e.findDelayed(ctx, queue, id)
	if isNotFound(err) || err == nil && isReached(due, stream.CachedInfo()) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	existed, err := deleteMessage(ctx, stream, found.Sequence)
	if err != nil || !existed {
		return 0, err
	}
	after, err := stream.Info(ctx)
	if err == nil && isReached(due, after) {
		err = errors.New("the job became due while it was deleted")
	}
	if err != nil {
		return 0, &broker.SendError{Failure: broker.ErrUnavailable, Err: fmt.Errorf("it is unknown whether the job was canceled in time: %w", err)}
	}
	if err := jobkeys.EndCanceled(ctx, e, queue, id, found.headers()); err != nil {
		return 0, err
	}
	return found.Sequence, nil
}

// isReached reports whether the server may have made the message ready.
func isReached(due time.Time, info *jetstream.StreamInfo) bool {
	return !info.TimeStamp.Add(clockMargin).Before(due)
}

// findDelayed asks the leader of the stream, because a replica may not have the message yet.
func (e *Engine) findDelayed(ctx context.Context, queue, id string) (found *storedMessage, due time.Time, err error) {
	found, err = e.readLast(ctx, delayedStreamName(queue), delayedSubject(queue, delayedToken(id)))
	if err != nil {
		return nil, time.Time{}, err
	}
	if found == nil {
		return nil, time.Time{}, jetstream.ErrMsgNotFound
	}
	due, err = dueTime(found)
	return found, due, err
}

func dueTime(delayed *storedMessage) (time.Time, error) {
	schedule := broker.HeaderValue(delayed.headers(), jetstream.ScheduleHeader)
	if schedule == "" {
		return time.Time{}, errors.New("the delayed message has no time")
	}
	due, err := time.Parse(time.RFC3339, strings.TrimPrefix(schedule, scheduleAt))
	if err != nil {
		err = fmt.Errorf("the delayed message has no valid time: %w", err)
	}
	return due, err
}

// findDue returns the message of a job that is due, and that the queue has no space for yet; nil if there is no such message.
func (e *Engine) findDue(ctx context.Context, queue, id string) (*storedMessage, error) {
	found, err := e.readLast(ctx, delayedStreamName(queue), dueSubject(queue, "*", delayedToken(id)))
	if isNotFound(err) {
		return nil, nil //nolint:nilnil // the queue cannot delay jobs
	}
	return found, err
}
