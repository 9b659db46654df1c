package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// clockMargin is how much the clocks of the servers of a cluster may differ.
const clockMargin = time.Second

// CancelDelayed implements broker.Producer. While a server makes a message ready, clients can still delete its
// schedule. So the message is canceled only if the server's clock had not reached its time after the deletion.
func (e *Engine) CancelDelayed(ctx context.Context, queue, id string) (bool, error) {
	canceled, err := e.cancelDelayed(ctx, queue, id)
	if errors.As(err, new(*broker.SendError)) {
		return canceled, err
	}
	return canceled, broker.SendErrorOf(e.classifyError("canceling a job of the queue "+queue, err))
}

func (e *Engine) cancelDelayed(ctx context.Context, queue, id string) (bool, error) {
	stream, err := e.js.Stream(ctx, streamName(queue))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, broker.FieldFailure(broker.ErrUnknownQueue, "queue", "is unknown: the broker has no queue %s", queue)
	}
	if err != nil {
		return false, err
	}
	sequence, due, err := e.findDelayed(ctx, queue, id)
	if isNotFound(err) || err == nil && isReached(due, stream.CachedInfo()) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	existed, err := deleteMessage(ctx, stream, sequence)
	if err != nil || !existed {
		return false, err
	}
	after, err := stream.Info(ctx)
	if err == nil && isReached(due, after) {
		err = errors.New("the job became due while it was deleted")
	}
	if err != nil {
		return false, &broker.SendError{Failure: broker.ErrUnavailable, Err: fmt.Errorf("it is unknown whether the job was canceled in time: %w", err)}
	}
	return true, nil
}

// isReached reports whether the server may have made the message ready.
func isReached(due time.Time, info *jetstream.StreamInfo) bool {
	return !info.TimeStamp.Add(clockMargin).Before(due)
}

// findDelayed asks the leader of the stream: a replica could not have the message yet.
func (e *Engine) findDelayed(ctx context.Context, queue, id string) (sequence uint64, due time.Time, err error) {
	body, err := json.Marshal(map[string]string{"last_by_subj": delayedSubject(queue, id)})
	if err != nil {
		return 0, time.Time{}, err
	}
	reply, err := e.nc.RequestWithContext(ctx, e.apiPrefix()+"STREAM.MSG.GET."+streamName(queue), body)
	if err != nil {
		return 0, time.Time{}, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
			Headers  []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, time.Time{}, fmt.Errorf("the server's answer is invalid: %w", err)
	}
	if answer.Error != nil {
		return 0, time.Time{}, answer.Error
	}
	due, err = scheduledTime(answer.Message.Headers)
	return answer.Message.Sequence, due, err
}

// scheduledTime reads the schedule in the headers of a message.
func scheduledTime(headers []byte) (time.Time, error) {
	for line := range strings.SplitSeq(string(headers), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(name, jetstream.ScheduleHeader) {
			continue
		}
		text, _ := strings.CutPrefix(textproto.TrimString(value), scheduleAt)
		due, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return time.Time{}, fmt.Errorf("the delayed message has no valid time: %w", err)
		}
		return due, nil
	}
	return time.Time{}, errors.New("the delayed message has no time")
}
