package jetstream

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
)

// confirmDelay is the time between two reads that both have to find a message stranded. A server removes an
// acknowledged message from its stream shortly after the consumer no longer counts it.
const confirmDelay = 2 * time.Second

// The errors in dead letters of stranded messages.
const (
	reasonGivenUp = "the broker stopped delivering the message before a worker reported a result"
	reasonRetired = "the priority of the message was removed before the message was due"
)

// Rescue implements broker.Engine. It depends on no advisory of the server, which could be lost: it
// compares the stream with the positions of its consumers.
func (e *Engine) Rescue(ctx context.Context, queue string) (broker.RescueResult, error) {
	result, err := e.rescueMessages(ctx, queue)
	return result, e.classifyError("rescuing messages of the queue "+queue, err)
}

func (e *Engine) rescueMessages(ctx context.Context, queue string) (result broker.RescueResult, err error) {
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return result, err
	}
	if stream.CachedInfo().State.Msgs == 0 {
		result.Stranded = new(int64(0))
		return result, nil
	}
	stranded, err := confirmStranded(ctx, stream, queue)
	if err != nil {
		return result, err
	}
	for _, sequence := range slices.Sorted(maps.Keys(stranded)) {
		moved, err := e.buryStranded(ctx, stream, queue, sequence, stranded[sequence])
		if err != nil {
			return result, err
		}
		result.Rescued += moved
	}
	result.Stranded, err = countStranded(ctx, stream, queue)
	return result, err
}

// confirmStranded returns what findStranded finds twice.
func confirmStranded(ctx context.Context, stream jetstream.Stream, queue string) (map[uint64]string, error) {
	seen, err := findStranded(ctx, stream, queue)
	if err != nil || len(seen) == 0 {
		return nil, err
	}
	select {
	case <-time.After(confirmDelay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	again, err := findStranded(ctx, stream, queue)
	maps.DeleteFunc(again, func(sequence uint64, reason string) bool { return seen[sequence] != reason })
	return again, err
}

// countAttempts is how often the messages are counted before their number is unknown.
const countAttempts = 10

// countStranded returns how many messages the stream has for its consumers beyond those that they count. The
// answers of the server are comparable only if no message arrives or leaves in between.
func countStranded(ctx context.Context, stream jetstream.Stream, queue string) (*int64, error) {
	before, err := stream.Info(ctx, jetstream.WithSubjectFilter(readySubject(queue, "*")))
	if err != nil {
		return nil, err
	}
	for range countAttempts {
		consumers, err := listConsumers(ctx, stream)
		if err != nil {
			return nil, err
		}
		after, err := stream.Info(ctx, jetstream.WithSubjectFilter(readySubject(queue, "*")))
		if err != nil {
			return nil, err
		}
		if before.State.LastSeq == after.State.LastSeq && before.State.Msgs == after.State.Msgs {
			return surplus(ctx, stream, after.State.Subjects, consumers), nil
		}
		before = after
	}
	return nil, nil
}

// surplus compares the number of messages on each subject with that of its consumer. Nil: a consumer is
// missing.
func surplus(
	ctx context.Context, stream jetstream.Stream, subjects map[string]uint64, consumers map[string]*jetstream.ConsumerInfo,
) *int64 {
	all := int64(0)
	for subject, stored := range subjects {
		counted := uint64(0)
		if consumer := consumers[priorityFromSubject(subject)]; consumer != nil {
			counted = consumer.NumPending + uint64(max(consumer.NumAckPending, 0))
		} else if !isRetired(ctx, stream, subject) {
			return nil
		}
		all += max(0, int64(stored)-int64(counted)) //nolint:gosec // counts of messages
	}
	return &all
}

// findStranded returns the sequence numbers of at most broker.MaxRescued messages that no worker can
// receive, with the reason.
func findStranded(ctx context.Context, stream jetstream.Stream, queue string) (map[uint64]string, error) {
	// Read the consumers before the messages: a message that is in the stream afterwards was in it then.
	consumers, err := listConsumers(ctx, stream)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(readySubject(queue, "*")))
	if err != nil {
		return nil, err
	}
	stranded := map[uint64]string{}
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		last, reason := uint64(0), reasonGivenUp
		if consumer := consumers[priorityFromSubject(subject)]; consumer != nil {
			last = lastGivenUp(consumer, subject)
		} else if isRetired(ctx, stream, subject) {
			last, reason = math.MaxUint64, reasonRetired
		}
		for next := uint64(1); next <= last && len(stranded) < broker.MaxRescued; {
			message, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
			if isNotFound(err) || err == nil && (message.Sequence > last || message.Sequence < next) {
				break
			}
			if err != nil {
				return nil, err
			}
			stranded[message.Sequence], next = reason, message.Sequence+1
		}
	}
	return stranded, nil
}

// lastGivenUp returns a sequence number: the consumer neither holds the messages of the subject up to it
// for a worker, nor delivers them later. The server does not say which of the later messages it holds. After
// a restart, its floor can be lower than before.
func lastGivenUp(consumer *jetstream.ConsumerInfo, subject string) uint64 {
	switch {
	case consumer.Config.FilterSubject != subject:
		return 0 // someone changed it, and its position is one among other messages
	case consumer.NumAckPending == 0:
		return consumer.Delivered.Stream
	}
	return consumer.AckFloor.Stream
}

// isRetired reports whether a subject is that of a removed priority, without a consumer. A delayed message
// can become ready in it. A consumer that is not listed is no proof: a server with it may be offline.
func isRetired(ctx context.Context, stream jetstream.Stream, subject string) bool {
	if slices.Contains(stream.CachedInfo().Config.Subjects, subject) {
		return false
	}
	_, err := stream.Consumer(ctx, priorityFromSubject(subject))
	return isNotFound(err)
}

// buryStranded makes a dead letter of a message, and returns 0 if the message no longer exists.
func (e *Engine) buryStranded(ctx context.Context, stream jetstream.Stream, queue string, sequence uint64, reason string) (int, error) {
	message, err := stream.GetMsg(ctx, sequence)
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stored, err := e.storeDeadLetter(ctx, &buriedMessage{
		queue: queue, priority: priorityFromSubject(message.Subject), sequence: message.Sequence,
		payload: message.Data, headers: message.Header, sent: message.Time, reason: reason,
	})
	if err != nil {
		return 0, err
	}
	id := jobID(message.Header, queue, strconv.FormatUint(sequence, 10))
	if err := jobkeys.New(e).Of(queue, id, producerHeaders(message.Header)).End(ctx, true); err != nil {
		return 0, err
	}
	existed, err := deleteMessage(ctx, stream, sequence)
	switch {
	case err != nil:
		return 0, err
	case existed:
		return 1, nil
	case stored.Duplicate:
		return 0, nil // an earlier call deleted the message, and its answer was lost
	}
	// The message was acknowledged after all: a replica of the stream was late.
	dead, err := e.js.Stream(ctx, deadStreamName(queue))
	if err == nil {
		_, err = deleteMessage(ctx, dead, stored.Sequence)
	}
	return 0, err
}

// deleteMessage reports whether the message existed. The server has no error code of its own for one that
// does not.
func deleteMessage(ctx context.Context, stream jetstream.Stream, sequence uint64) (bool, error) {
	err := stream.DeleteMsg(ctx, sequence)
	if err == nil {
		return true, nil
	}
	if _, lookUp := stream.GetMsg(ctx, sequence); isNotFound(lookUp) {
		return false, nil
	}
	return false, err
}
