package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// deadLetterStream implements broker.DeadLetterQueue.
type deadLetterStream struct {
	*Engine
	queue string
}

// DeadLetters implements broker.Engine.
func (e *Engine) DeadLetters(queue string) broker.DeadLetterQueue { return &deadLetterStream{e, queue} }

// List implements broker.DeadLetterQueue.
func (c *deadLetterStream) List(ctx context.Context, after uint64, limit int) ([]broker.DeadLetter, error) {
	var letters []broker.DeadLetter
	err := c.forEachDeadLetter(ctx, &broker.RequeueOptions{After: after, Number: limit}, func(message *jetstream.RawStreamMsg) error {
		letters = append(letters, deadLetterFromMessage(message))
		return nil
	})
	return letters, c.classifyError("listing the dead letters of the queue "+c.queue, err)
}

// Requeue implements broker.DeadLetterQueue.
func (c *deadLetterStream) Requeue(ctx context.Context, o broker.RequeueOptions) (int, error) {
	doing := "requeueing the dead letters of the queue " + c.queue
	target, err := c.js.Stream(ctx, streamName(c.queue))
	if err != nil {
		return 0, c.classifyError(doing, err)
	}
	taken := target.CachedInfo().Config.Subjects
	_, err = c.js.Stream(ctx, jobsStreamName(c.queue))
	keepsStates := !isNotFound(err)
	if keepsStates && err != nil {
		return 0, c.classifyError(doing, err)
	}
	n, err := c.deleteDeadLetters(ctx, o, func(letter *jetstream.RawStreamMsg, message *nats.Msg) error {
		switch whole := letter.Header.Get(headerTruncated); {
		case o.Payload != nil:
			message.Data = *o.Payload
		case whole != "":
			return broker.Errorf(broker.ClassInvalid, "the dead letter %d has only the beginning of its payload of %s bytes: give it a whole payload, or delete it",
				letter.Sequence, whole)
		}
		message.Subject = readySubject(c.queue, priorityFromSubject(letter.Subject))
		if !slices.Contains(taken, message.Subject) {
			message.Subject = taken[0] // its priority was removed
		}
		return nil
	}, func(message *nats.Msg, sequence uint64) error {
		if !keepsStates {
			return nil
		}
		// The job waits again.
		_, err := c.recordEntry(ctx, c.queue, &jobstate.Entry{
			ID: jobID(message.Header, c.queue, strconv.FormatUint(sequence, 10)), State: jobstate.Waiting, Sequence: sequence,
			Kind: broker.HeaderValue(message.Header, broker.KindHeader), Priority: priorityFromSubject(message.Subject),
		}, 0)
		return err
	})
	return n, c.classifyError(doing, err)
}

// Move implements broker.DeadLetterQueue.
func (c *deadLetterStream) Move(ctx context.Context, to string, number int) (int, error) {
	doing := fmt.Sprintf("moving the dead letters of the queue %s to %s", c.queue, to)
	if to == c.queue {
		return 0, broker.Errorf(broker.ClassInvalid, "%s: source and destination are the same queue", doing)
	}
	if _, err := c.js.Stream(ctx, deadStreamName(to)); err != nil {
		return 0, c.classifyError(doing, err)
	}
	n, err := c.deleteDeadLetters(ctx, broker.RequeueOptions{Number: number}, func(letter *jetstream.RawStreamMsg, message *nats.Msg) error {
		message.Subject = deadLetterSubject(to, priorityFromSubject(letter.Subject))
		own := nats.Header{}
		for _, name := range []string{headerError, headerAttempts, headerOrigin, headerSent, headerTruncated} {
			if value := letter.Header.Get(name); value != "" {
				own.Set(name, value)
			}
		}
		maps.Copy(message.Header, own)
		for _, name := range []string{headerFirstOrigin, jetstream.MsgIDHeader} {
			own.Set(name, message.Header.Get(name))
		}
		shrink(message, own, c.nc.MaxPayload())
		return nil
	}, func(*nats.Msg, uint64) error { return nil })
	return n, c.classifyError(doing, err)
}

// deleteDeadLetters deletes the selected dead letters. If readdress is not nil, it first publishes a copy of each, which readdress
// completes, and calls stored with its number. A dead letter that readdress refuses, or whose copy is too large, stays, and does not keep
// others from being copied; its error is returned at the end. It returns the number of copies, or without readdress that of the deleted
// dead letters.
func (c *deadLetterStream) deleteDeadLetters(
	ctx context.Context, o broker.RequeueOptions, readdress func(letter *jetstream.RawStreamMsg, message *nats.Msg) error,
	stored func(message *nats.Msg, sequence uint64) error,
) (int, error) {
	var refusal error
	stream, err := c.js.Stream(ctx, deadStreamName(c.queue))
	if err != nil {
		return 0, err
	}
	done := 0
	err = c.forEachDeadLetter(ctx, &o, func(letter *jetstream.RawStreamMsg) error {
		if decoded := deadLetterFromMessage(letter); o.Selects != nil && !o.Selects(&decoded) {
			return nil
		}
		if readdress != nil {
			message := nats.NewMsg("")
			message.Data = letter.Data
			maps.Copy(message.Header, copiedHeaders(letter.Header))
			place := deadStreamName(c.queue) + "/" + strconv.FormatUint(letter.Sequence, 10)
			message.Header.Set(headerFirstOrigin, cmp.Or(letter.Header.Get(headerFirstOrigin), letter.Header.Get(headerOrigin), place))
			// The message ID makes the server drop the duplicate of an interrupted call.
			message.Header.Set(jetstream.MsgIDHeader, place+"@"+strconv.FormatInt(letter.Time.UnixNano(), 10))
			if err := readdress(letter, message); err != nil {
				refusal = cmp.Or(refusal, err)
				return nil
			}
			confirmed, err := c.js.PublishMsg(ctx, message)
			if errors.Is(err, nats.ErrMaxPayload) {
				refusal = cmp.Or(refusal, broker.Errorf(broker.ClassInvalid, "the dead letter %d is too large to be copied: %w", letter.Sequence, err))
				return nil
			}
			if err != nil {
				return err
			}
			if err := stored(message, confirmed.Sequence); err != nil {
				return err
			}
		}
		existed, err := deleteMessage(ctx, stream, letter.Sequence)
		if err == nil && (existed || readdress != nil) {
			done++
		}
		return err
	})
	if err == nil && refusal != nil {
		err = &broker.KeptDeadLetterError{Err: refusal}
	}
	return done, err
}

// forEachDeadLetter calls show for the dead letters that exist at the start of the call, oldest first, within the bounds of the options.
func (c *deadLetterStream) forEachDeadLetter(ctx context.Context, o *broker.RequeueOptions, show func(*jetstream.RawStreamMsg) error) error {
	stream, err := c.js.Stream(ctx, deadStreamName(c.queue))
	if err != nil {
		return err
	}
	last, after := stream.CachedInfo().State.LastSeq, o.After
	for shown := 0; o.Continues(shown); shown++ {
		message, err := stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(deadLetterSubject(c.queue, ">")))
		if isNotFound(err) || err == nil && message.Sequence > last {
			return nil
		}
		if err != nil {
			return err
		}
		if err := show(message); err != nil {
			return err
		}
		after = message.Sequence
	}
	return nil
}

// DeleteSelected implements broker.DeadLetterQueue.
func (c *deadLetterStream) DeleteSelected(ctx context.Context, selects func(*broker.DeadLetter) bool) (int, error) {
	deleted, err := c.deleteDeadLetters(ctx, broker.RequeueOptions{Selects: selects}, nil, nil)
	return deleted, c.classifyError("deleting dead letters of the queue "+c.queue, err)
}

// Purge implements broker.DeadLetterQueue.
func (c *deadLetterStream) Purge(ctx context.Context) error {
	doing := "purging the dead letters of the queue " + c.queue
	// Rescue first, or stranded messages would become dead letters later.
	if _, err := c.Rescue(ctx, c.queue); err != nil {
		return err
	}
	stream, err := c.js.Stream(ctx, deadStreamName(c.queue))
	if err != nil {
		return c.classifyError(doing, err)
	}
	return c.classifyError(doing, stream.Purge(ctx, jetstream.WithPurgeSubject(deadLetterSubject(c.queue, ">"))))
}
