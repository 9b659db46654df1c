package jetstream

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/clock"
)

// confirmDelay is the time between two reads that must both find a message stranded, because a server removes an acknowledged message
// from its stream shortly after the consumer no longer counts it.
const confirmDelay = 2 * time.Second

// The errors in dead letters of stranded messages.
const (
	reasonGivenUp = "the broker stopped delivering the message before a worker reported a result"
	reasonRetired = "the priority of the message was removed before the message was due"
	reasonLarge   = "the delayed message is too large for the queue"
)

// Rescue implements broker.Engine. It depends on no advisory of the server, which could be lost: it compares the stream with the
// positions of its consumers.
func (e *Engine) Rescue(ctx context.Context, queue string) (result broker.RescueResult, err error) {
	defer func() { err = e.classifyError("rescuing messages of the queue "+queue, err) }()
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return result, err
	}
	if err := e.rearmOverdue(ctx, queue, stream.CachedInfo().TimeStamp); err != nil {
		return result, err
	}
	var overdue int64
	if result.Rescued, overdue, err = e.rescueDue(ctx, stream, queue); err != nil {
		return result, err
	}
	defer func() {
		if result.Stranded != nil {
			*result.Stranded += overdue
		}
	}()
	if stream.CachedInfo().State.Msgs == 0 {
		result.Stranded = new(int64(0))
		return result, nil
	}
	stranded, err := findStranded(ctx, stream, queue)
	if err == nil && len(stranded) > 0 {
		seen := stranded
		if err := clock.SleepContext(ctx, confirmDelay); err != nil {
			return result, err
		}
		stranded, err = findStranded(ctx, stream, queue)
		maps.DeleteFunc(stranded, func(sequence uint64, reason string) bool { return seen[sequence] != reason })
	}
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

// rescueDue makes dead letters of delayed messages that are due and that the stream of the queue refuses for their size, because the server
// moves no later message before them. It returns the number of other messages that should have been moved.
func (e *Engine) rescueDue(ctx context.Context, stream jetstream.Stream, queue string) (rescued int, overdue int64, err error) {
	config := &stream.CachedInfo().Config
	for rescued < broker.MaxRescued {
		oldest, err := e.oldestDue(ctx, queue)
		if err != nil || oldest == nil {
			return rescued, 0, err
		}
		delayed, err := e.js.Stream(ctx, delayedStreamName(queue))
		switch {
		case err != nil:
			return rescued, 0, err
		case delayed.CachedInfo().TimeStamp.Sub(oldest.Time) <= overdueAge:
			return rescued, 0, nil
		case !isTooLarge(oldest, config, queue):
			if config.Discard == jetstream.DiscardOld { // otherwise, it may wait until the queue has space
				overdue = 1
			}
			return rescued, overdue, nil
		}
		moved, err := e.buryStranded(ctx, delayed, queue, oldest.Sequence, reasonLarge)
		if err != nil {
			return rescued, 0, err
		}
		rescued += moved
	}
	return rescued, 0, nil
}

// rearmAge is how long the server may take to make a delayed message due. The servers of a cluster may need some time to agree, and a message
// that is stored again meanwhile would become due twice.
const rearmAge = time.Minute

// rearmOverdue stores the first delayed messages again if they should have become due. The server tries once to make a message due, and then
// not before a restart or a new leader of the stream, for example if the account had no storage left.
func (e *Engine) rearmOverdue(ctx context.Context, queue string, now time.Time) error {
	for next, count := uint64(1), 0; count < broker.MaxRescued; count++ {
		found, err := e.readMessage(ctx, delayedStreamName(queue), map[string]any{"seq": next, "next_by_subj": delayedSubject(queue, ">")})
		if isNotFound(err) || err == nil && found == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if due, err := dueTime(found); err != nil || now.Sub(due) <= rearmAge {
			return nil //nolint:nilerr // a schedule of another form, such as a repeated one
		}
		message := &nats.Msg{Subject: found.Subject, Header: found.headers(), Data: found.Data}
		message.Header.Del(jetstream.MsgIDHeader) // its number would be that of a duplicate
		message.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		if _, err := e.writeLast(ctx, delayedStreamName(queue), message, found.Sequence); err != nil && !errors.Is(err, broker.ErrKeyChanged) {
			return err
		}
		next = found.Sequence + 1
	}
	return nil
}

// maxHeaderBytes is the size of the headers that a server stores.
const maxHeaderBytes = math.MaxUint16

// isTooLarge reports whether a message that is due is too large for the stream of the queue, with the header that the server adds.
func isTooLarge(due *storedMessage, config *jetstream.StreamConfig, queue string) bool {
	const identityBytes = 64 // at most
	added := len("Nats-Stream-Source:       \r\n") + len(delayedStreamName(queue)) + len(strconv.FormatUint(due.Sequence, 10)) +
		len(dueSubject(queue, "*", "*")) + len(readySubject(queue, "{{wildcard(1)}}")) + len(due.Subject) + identityBytes
	headers := len(due.Headers) + added
	return headers > maxHeaderBytes || config.MaxMsgSize > 0 && headers+len(due.Data) > int(config.MaxMsgSize)
}

const countAttempts = 10

// countStranded returns the number of messages in the stream that its consumers do not count; nil if it is unknown. The answers of
// the server are comparable only if no message arrives or leaves in between.
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
		if before.State.LastSeq != after.State.LastSeq || before.State.Msgs != after.State.Msgs {
			before = after
			continue
		}
		all := int64(0)
		for subject, stored := range after.State.Subjects {
			counted := uint64(0)
			if consumer := consumers[priorityFromSubject(subject)]; consumer != nil {
				counted = consumer.NumPending + uint64(max(consumer.NumAckPending, 0))
			} else if !isRetired(ctx, stream, subject) {
				return nil, nil // a consumer is missing
			}
			all += max(0, int64(stored)-int64(counted)) //nolint:gosec // counts of messages
		}
		return &all, nil
	}
	return nil, nil
}

// findStranded returns the sequence numbers of at most broker.MaxRescued messages that no worker can receive, with the reason.
func findStranded(ctx context.Context, stream jetstream.Stream, queue string) (map[uint64]string, error) {
	// Read the consumers before the messages: a message that is in the stream afterwards was in it before.
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

// lastGivenUp returns the sequence number up to which the consumer neither holds messages of the subject for a worker, nor will
// deliver them. The server does not report which later messages the consumer holds. After a restart, the floor can be lower than
// before.
func lastGivenUp(consumer *jetstream.ConsumerInfo, subject string) uint64 {
	switch {
	case consumer.Config.FilterSubject != subject:
		return 0 // someone changed the filter, and the position may be that of a message with another subject
	case consumer.NumAckPending == 0:
		return consumer.Delivered.Stream
	}
	return consumer.AckFloor.Stream
}

// isRetired reports whether a subject belongs to a removed priority without a consumer. A delayed message can become ready on such a
// subject. A consumer that is not listed may exist, because its server may be offline.
func isRetired(ctx context.Context, stream jetstream.Stream, subject string) bool {
	if slices.Contains(stream.CachedInfo().Config.Subjects, subject) {
		return false
	}
	_, err := stream.Consumer(ctx, priorityFromSubject(subject))
	return isNotFound(err)
}

// buryStranded makes a dead letter of a message, and returns 0 if the message no longer exists.
func (e *Engine) buryStranded(ctx context.Context, stream jetstream.Stream, queue string, sequence uint64, reason string) (int, error) {
	message, err := e.readSequence(ctx, stream.CachedInfo().Config.Name, sequence)
	if err != nil || message == nil {
		return 0, err
	}
	headers := message.headers()
	priority := priorityFromSubject(message.Subject)
	if due, isDue := strings.CutPrefix(message.Subject, subjectPrefix+queue+".due."); isDue {
		priority, _, _ = strings.Cut(due, ".")
	}
	stored, err := e.storeDeadLetter(ctx, &buriedMessage{
		queue: queue, priority: priority, sequence: message.Sequence,
		payload: message.Data, headers: headers, sent: message.Time, reason: reason,
	})
	if err != nil {
		return 0, err
	}
	id := jobID(headers, queue, strconv.FormatUint(sequence, 10))
	if err := jobkeys.New(e).Of(queue, id, producerHeaders(headers)).End(ctx, true); err != nil {
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

// deleteMessage reports whether the message existed. The server has no specific error code for a message that does not exist.
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
