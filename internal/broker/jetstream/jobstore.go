package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// stateHeader has the state of an entry, so that entries can be listed without their content.
const stateHeader = broker.HeaderPrefix + "State"

// The prefixes of keys in the bucket with the states of jobs.
const (
	jobKeyPrefix    = "job."
	cancelKeyPrefix = "cancel."
)

// jobsSubject returns the subject of a key about a job in the stream of the bucket with the states of jobs.
func jobsSubject(queue, keyPrefix, id string) string {
	return "$KV." + jobsBucketName(queue) + "." + keyPrefix + keyToken(id)
}

// recordEntry stores an entry unless a later entry is stored, and returns the number of the stored entry. Last is the number of the
// entry that it probably replaces; 0: no entry.
func (e *Engine) recordEntry(ctx context.Context, queue string, entry *jobstate.Entry, last uint64) (stored uint64, err error) {
	raw, err := entry.Encode()
	if err != nil {
		return 0, err
	}
	subject := jobsSubject(queue, jobKeyPrefix, entry.ID)
	for {
		message := &nats.Msg{Subject: e.writableSubject(subject), Data: raw, Header: nats.Header{stateHeader: {string(entry.State)}}}
		stored, err := e.writeLast(ctx, jobsStreamName(queue), message, last)
		if !errors.Is(err, broker.ErrKeyChanged) {
			return stored, err
		}
		found, err := e.readLast(ctx, jobsStreamName(queue), subject)
		if err != nil {
			return 0, err
		}
		if last = 0; found != nil {
			if last = found.Sequence; !found.isDeletedKey() && !entry.Replaces(jobstate.Decode(found.Data)) {
				return last, nil
			}
		}
	}
}

// Job implements broker.JobStore.
func (e *Engine) Job(ctx context.Context, queue, id string) (info jobstate.Info, err error) {
	defer func() { err = e.jobStoreError(ctx, "looking up a job of", queue, err) }()
	evidence := &jobstate.Evidence{ID: id}
	found, err := e.readLast(ctx, jobsStreamName(queue), jobsSubject(queue, jobKeyPrefix, id))
	if err != nil {
		return info, err
	}
	if found != nil && !found.isDeletedKey() {
		evidence.Entry, evidence.EntryTime = jobstate.Decode(found.Data), found.Time
	}
	if sequence, err := strconv.ParseUint(id, 10, 64); err == nil {
		evidence.Sequence = sequence
	}
	for {
		var question jobstate.Question
		info, question = jobstate.Decide(evidence)
		if question == jobstate.Answered {
			if info.State.IsFinal() {
				return info, nil
			}
			request, err := e.readLast(ctx, jobsStreamName(queue), jobsSubject(queue, cancelKeyPrefix, id))
			info.CancelRequested = err == nil && request != nil && !request.isDeletedKey()
			return info, err
		}
		if err := e.answer(ctx, queue, evidence, question); err != nil {
			return info, err
		}
		evidence.Answer(question)
	}
}

// jobStoreError adds the operation to an error, and explains a missing bucket.
func (e *Engine) jobStoreError(ctx context.Context, operation, queue string, err error) error {
	if err == nil || errors.As(err, new(*broker.SendError)) {
		return err
	}
	if isStreamMissing(err) {
		if unknown := e.requireQueue(ctx, queue); unknown != nil {
			return unknown
		}
		return broker.UnsupportedField("queue", "keeps no state of jobs: set spec.results of the Queue of %s", queue)
	}
	return broker.SendErrorOf(e.classifyError(operation+" the queue "+queue, err))
}

// requireQueue returns an error if the server says that it has no such queue.
func (e *Engine) requireQueue(ctx context.Context, queue string) error {
	if _, missing := e.js.Stream(ctx, streamName(queue)); isNotFound(missing) {
		return broker.UnknownQueue(queue)
	}
	return nil
}

// isStreamMissing reports that the stream of a request does not exist. A request to store a message then has no responders.
func isStreamMissing(err error) bool {
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrStreamNotFound)
}

func (e *Engine) answer(ctx context.Context, queue string, evidence *jobstate.Evidence, question jobstate.Question) (err error) {
	switch question {
	case jobstate.AskDelayed:
		_, evidence.DueTime, err = e.findDelayed(ctx, queue, evidence.ID)
		if isNotFound(err) {
			var waiting *storedMessage
			if waiting, err = e.findDue(ctx, queue, evidence.ID); waiting == nil {
				return err
			}
			evidence.DueTime = waiting.Time
		}
		evidence.Delayed = err == nil
	case jobstate.AskMessage:
		evidence.Message, err = e.findMessage(ctx, queue, evidence)
	case jobstate.AskClock:
		evidence.Now, evidence.CompleteSince, err = e.entriesCompleteSince(ctx, queue)
	case jobstate.AskDelivered:
		var consumer jetstream.Consumer
		if consumer, err = e.js.Consumer(ctx, streamName(queue), evidence.Message.Priority); err == nil {
			evidence.Delivered = consumer.CachedInfo().Delivered.Stream >= evidence.MessageSequence()
		}
	case jobstate.Answered:
	}
	return err
}

// findMessage returns the message of a job, unless a message of another job has its number.
func (e *Engine) findMessage(ctx context.Context, queue string, evidence *jobstate.Evidence) (*jobstate.Message, error) {
	sequence := evidence.MessageSequence()
	found, err := e.readSequence(ctx, streamName(queue), sequence)
	if err != nil || found == nil {
		return nil, err
	}
	headers := found.headers()
	if jobID(headers, queue, strconv.FormatUint(sequence, 10)) != evidence.ID || !strings.HasPrefix(found.Subject, readySubject(queue, "")) {
		return nil, nil //nolint:nilnil // nil means that there is no such message
	}
	return &jobstate.Message{
		Priority: priorityFromSubject(found.Subject), Kind: broker.HeaderValue(headers, broker.KindHeader), StoredTime: found.Time,
	}, nil
}

// entriesCompleteSince returns the time of the server, and the time since which all entries still exist. Once half of the bucket's
// space is used, entries that are older than the first existing entry may have been discarded.
func (e *Engine) entriesCompleteSince(ctx context.Context, queue string) (now, since time.Time, err error) {
	stream, err := e.js.Stream(ctx, jobsStreamName(queue))
	if err != nil {
		return now, since, err
	}
	info := stream.CachedInfo()
	if now = info.TimeStamp; now.IsZero() {
		now = time.Now()
	}
	since = info.Created
	if oldest := now.Add(-info.Config.MaxAge); oldest.After(since) {
		since = oldest
	}
	if first := info.State.FirstTime; info.Config.MaxBytes > 0 && info.State.Bytes > uint64(info.Config.MaxBytes)/2 && first.After(since) {
		since = first
	}
	return now, since, nil
}

// RecordWaiting implements broker.JobStore.
func (e *Engine) RecordWaiting(ctx context.Context, job *broker.OutgoingJob, sent broker.SendResult) error {
	entry := &jobstate.Entry{ID: sent.ID, State: jobstate.Waiting, Kind: job.Kind, Priority: job.PriorityName(), Sequence: sent.Sequence}
	if !job.DueTime.IsZero() {
		entry.NextTime = job.DueTime.UTC()
	}
	var err error
	if sent.Sequence == 0 {
		entry.Sequence, err = e.lastNumber(ctx, job.Queue)
	}
	if err == nil {
		_, err = e.recordEntry(ctx, job.Queue, entry, 0)
	}
	return e.jobStoreError(ctx, "recording a job of", job.Queue, err)
}

// lastNumber returns the number of the last message of a queue, which is less than that of each delayed message that becomes ready.
func (e *Engine) lastNumber(ctx context.Context, queue string) (uint64, error) {
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.LastSeq, nil
}

// CancelJob implements broker.JobStore.
func (e *Engine) CancelJob(ctx context.Context, queue, id string) (removed bool, err error) {
	defer func() { err = e.jobStoreError(ctx, "canceling a job of", queue, err) }()
	sequence, err := e.cancelDelayed(ctx, queue, id)
	if err != nil {
		return sequence > 0, err
	}
	if sequence > 0 {
		if sequence, err = e.lastNumber(ctx, queue); err == nil {
			_, err = e.recordEntry(ctx, queue, &jobstate.Entry{ID: id, State: jobstate.Canceled, Sequence: sequence}, 0)
		}
		return true, err
	}
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return false, err
	}
	request := jobstate.Cancel{SentBefore: stream.CachedInfo().TimeStamp}
	if _, due, err := e.findDelayed(ctx, queue, id); err == nil {
		request.SentBefore = due.Add(clockMargin) // the job is about to become ready
	} else if waiting, err := e.findDue(ctx, queue, id); err == nil && waiting != nil {
		request.SentBefore = time.Time{} // the queue stores the job when it has space
	}
	raw, err := json.Marshal(request)
	if err == nil {
		_, err = e.store(ctx, &nats.Msg{Subject: e.writableSubject(jobsSubject(queue, cancelKeyPrefix, id)), Data: raw})
	}
	return false, err
}

const listPageSize = 1000

// ListJobs implements broker.JobStore. It reads the states of the last entries without their content, and then the entries that it
// returns.
func (e *Engine) ListJobs(ctx context.Context, queue string, states []jobstate.State, limit int) (list broker.JobList, err error) {
	defer func() { err = e.jobStoreError(ctx, "listing jobs of", queue, err) }()
	stream, err := e.js.Stream(ctx, jobsStreamName(queue))
	if err != nil {
		return list, err
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 {
		return list, nil
	}
	first := state.FirstSeq
	if state.LastSeq >= broker.MaxScannedJobs {
		first = max(first, state.LastSeq-broker.MaxScannedJobs+1)
	}
	list.Omitted = first > state.FirstSeq
	found, err := e.scanStates(ctx, queue, first, states)
	if err != nil {
		return list, err
	}
	if len(found) > limit {
		found, list.Omitted = found[len(found)-limit:], true
	}
	for _, sequence := range slices.Backward(found) {
		message, err := e.readSequence(ctx, jobsStreamName(queue), sequence)
		if err != nil {
			return list, err
		}
		if message == nil {
			continue // another entry has replaced it
		}
		if entry := jobstate.Decode(message.Data); entry != nil {
			list.Jobs = append(list.Jobs, entry.Info(message.Time))
		}
	}
	return list, nil
}

func (e *Engine) scanStates(ctx context.Context, queue string, first uint64, states []jobstate.State) (found []uint64, err error) {
	consumer, err := e.js.OrderedConsumer(ctx, jobsStreamName(queue), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"$KV." + jobsBucketName(queue) + "." + jobKeyPrefix + ">"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: first, HeadersOnly: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	for pending := uint64(1); pending > 0 && ctx.Err() == nil; {
		page, err := consumer.FetchNoWait(listPageSize)
		if err != nil {
			return nil, err
		}
		received := false
		for message := range page.Messages() {
			facts, err := message.Metadata()
			if err != nil {
				return nil, err
			}
			received, pending = true, facts.NumPending
			if slices.Contains(states, jobstate.State(message.Headers().Get(stateHeader))) {
				found = append(found, facts.Sequence.Stream)
			}
		}
		if err := page.Error(); err != nil || !received {
			return found, err
		}
	}
	return found, ctx.Err()
}
