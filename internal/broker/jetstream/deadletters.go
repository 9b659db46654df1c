package jetstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// deadLetterStream are the dead letters of a queue.
type deadLetterStream struct {
	*Engine
	queue string
}

// DeadLetters are the queue's dead letters.
func (e *Engine) DeadLetters(queue string) broker.DeadLetterQueue { return &deadLetterStream{e, queue} }

// List tells of at most limit dead letters whose ID is after that one, oldest first.
func (c *deadLetterStream) List(ctx context.Context, after uint64, limit int) ([]broker.DeadLetter, error) {
	var letters []broker.DeadLetter
	_, err := c.forEachDeadLetter(ctx, after, limit, func(message *jetstream.RawStreamMsg) error {
		letters = append(letters, deadLetterFromMessage(message))
		return nil
	})
	return letters, c.classifyError("listing the dead letters of the queue "+c.queue, err)
}

// Requeue gives the oldest of them back to workers, as new.
func (c *deadLetterStream) Requeue(ctx context.Context, number int) (int, error) {
	doing := "requeueing the dead letters of the queue " + c.queue
	target, err := c.js.Stream(ctx, streamName(c.queue))
	if err != nil {
		return 0, c.classifyError(doing, err)
	}
	taken := target.CachedInfo().Config.Subjects
	n, err := c.resendDeadLetters(ctx, number, func(letter *jetstream.RawStreamMsg) (*nats.Msg, error) {
		subject := readySubject(c.queue, priorityFromSubject(letter.Subject))
		if !slices.Contains(taken, subject) {
			// Its priority is gone: any is better than none.
			subject = taken[0]
		}
		message := nats.NewMsg(subject)
		message.Data = letter.Data
		maps.Copy(message.Header, producerHeaders(letter.Header))
		return message, nil
	})
	return n, c.classifyError(doing, err)
}

// Move makes the oldest of them dead letters of another queue.
func (c *deadLetterStream) Move(ctx context.Context, to string, number int) (int, error) {
	doing := fmt.Sprintf("moving the dead letters of the queue %s to %s", c.queue, to)
	if to == c.queue {
		return 0, broker.Errorf(broker.ClassInvalid, "%s: they are there already", doing)
	}
	if _, err := c.js.Stream(ctx, deadStreamName(to)); err != nil {
		return 0, c.classifyError(doing, err)
	}
	n, err := c.resendDeadLetters(ctx, number, func(letter *jetstream.RawStreamMsg) (*nats.Msg, error) {
		message := nats.NewMsg(deadLetterSubject(to, priorityFromSubject(letter.Subject)))
		message.Data = letter.Data
		maps.Copy(message.Header, producerHeaders(letter.Header))
		for _, name := range []string{headerError, headerAttempts, headerOrigin, headerSent} {
			message.Header.Set(name, letter.Header.Get(name))
		}
		return message, nil
	})
	return n, c.classifyError(doing, err)
}

// resendDeadLetters sends each letter on, and removes it once the server has the other.
func (c *deadLetterStream) resendDeadLetters(
	ctx context.Context, number int, readdress func(*jetstream.RawStreamMsg) (*nats.Msg, error),
) (int, error) {
	stream, err := c.js.Stream(ctx, deadStreamName(c.queue))
	if err != nil {
		return 0, err
	}
	return c.forEachDeadLetter(ctx, 0, number, func(letter *jetstream.RawStreamMsg) error {
		message, err := readdress(letter)
		if err != nil {
			return err
		}
		// If this breaks off before the letter is removed, the next try meets a duplicate.
		id := deadStreamName(c.queue) + "/" + strconv.FormatUint(letter.Sequence, 10) + "@" + strconv.FormatInt(letter.Time.UnixNano(), 10)
		if _, err := c.js.PublishMsg(ctx, message, jetstream.WithMsgID(id)); err != nil {
			return err
		}
		if err := stream.DeleteMsg(ctx, letter.Sequence); err != nil && !isNotFound(err) {
			return err
		}
		return nil
	})
}

// forEachDeadLetter shows the dead letters that are there now to a function, oldest first.
func (c *deadLetterStream) forEachDeadLetter(ctx context.Context, after uint64, limit int, show func(*jetstream.RawStreamMsg) error) (int, error) {
	stream, err := c.js.Stream(ctx, deadStreamName(c.queue))
	if err != nil {
		return 0, err
	}
	last, shown := stream.CachedInfo().State.LastSeq, 0
	for limit == 0 || shown < limit {
		message, err := stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(deadLetterSubject(c.queue, ">")))
		if isNotFound(err) || err == nil && message.Sequence > last {
			return shown, nil
		}
		if err != nil {
			return shown, err
		}
		if err := show(message); err != nil {
			return shown, err
		}
		after = message.Sequence
		shown++
	}
	return shown, nil
}

// Purge drops all of them.
func (c *deadLetterStream) Purge(ctx context.Context) error {
	doing := "purging the dead letters of the queue " + c.queue
	// Those that the server has given up on become letters, or they would stay behind.
	if _, err := c.Rescue(ctx, c.queue); err != nil {
		return err
	}
	stream, err := c.js.Stream(ctx, deadStreamName(c.queue))
	if err != nil {
		return c.classifyError(doing, err)
	}
	return c.classifyError(doing, stream.Purge(ctx, jetstream.WithPurgeSubject(deadLetterSubject(c.queue, ">"))))
}
