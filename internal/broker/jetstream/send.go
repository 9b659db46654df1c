package jetstream

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/clock"
)

// Send implements broker.Producer. A stream without a leader has no responder for a moment, so Send repeats the request while the
// stream exists.
func (e *Engine) Send(ctx context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
	if err := e.awaitConnection(ctx); err != nil {
		return broker.SendResult{}, e.sendError(ctx, job, err)
	}
	if err := e.checkSupport(ctx, job); err != nil {
		return broker.SendResult{}, err
	}
	message, id := outgoingMessage(job, time.Now())
	if err := e.checkSize(job, message); err != nil {
		return broker.SendResult{}, err
	}
	for {
		reply, err := e.nc.RequestMsgWithContext(ctx, message)
		result, err := confirmation(job, id, reply, err)
		if !errors.Is(err, errRejectedSubject) {
			return result, e.sendError(ctx, job, err)
		}
		if err := e.explainRejection(ctx, job); err != nil {
			return broker.SendResult{}, err
		}
		if err := clock.SleepContext(ctx, leaderRetryInterval); err != nil {
			return broker.SendResult{}, e.sendError(ctx, job, err)
		}
	}
}

// checkSize refuses a job that would be too large for a dead letter.
func (e *Engine) checkSize(job *broker.OutgoingJob, message *nats.Msg) error {
	if maxBytes := e.nc.MaxPayload(); int64(messageBytes(message)+deadLetterBytes) > maxBytes {
		return broker.FieldFailure(broker.ErrPayloadTooLarge, "payload", "has %d bytes; with its headers, and %d bytes for those of a dead letter, "+
			"the server accepts at most %d", len(job.Payload), deadLetterBytes, maxBytes)
	}
	return nil
}

const leaderRetryInterval, connectionRetryInterval = 250 * time.Millisecond, 50 * time.Millisecond

// awaitConnection waits for the connection to a server, so that the client library does not keep the jobs of calls that fail meanwhile, and
// send all of them once it has reconnected.
func (e *Engine) awaitConnection(ctx context.Context) error {
	for !e.nc.IsConnected() {
		if e.nc.IsClosed() {
			return nats.ErrConnectionClosed
		}
		if err := clock.SleepContext(ctx, connectionRetryInterval); err != nil {
			return fmt.Errorf("%w: %w", nats.ErrDisconnected, err)
		}
	}
	return nil
}

// SendMany implements broker.Producer. It sends all jobs before it waits, so the caller limits their number. It does not repeat
// requests.
func (e *Engine) SendMany(ctx context.Context, queue string, jobs []*broker.OutgoingJob) []broker.SendResult {
	b := &batch{
		Engine: e, ctx: ctx, queue: queue, jobs: jobs, results: make([]broker.SendResult, len(jobs)), isDone: make([]bool, len(jobs)),
		explanations: map[string]error{},
	}
	if err := e.awaitConnection(ctx); err != nil {
		b.failRest(err)
		return b.results
	}
	replies := make(chan *nats.Msg, len(jobs))
	inbox := e.nc.NewInbox()
	subscription, err := e.nc.ChanSubscribe(inbox+".*", replies)
	if err != nil {
		b.failRest(err)
		return b.results
	}
	defer func() { _ = subscription.Unsubscribe() }()
	now := time.Now()
	for i, job := range jobs {
		message, id := outgoingMessage(job, now)
		if err := cmp.Or(e.checkSupport(ctx, job), e.checkSize(job, message)); err != nil {
			b.finish(i, broker.SendResult{}, err)
			continue
		}
		b.results[i].ID = id
		message.Reply = inbox + "." + strconv.Itoa(i)
		if err := e.nc.PublishMsg(message); err != nil {
			b.finish(i, broker.SendResult{}, e.sendError(ctx, job, err))
		}
	}
	for b.doneCount < len(jobs) {
		select {
		case reply := <-replies:
			b.handleReply(reply)
		case <-ctx.Done():
			b.failRest(ctx.Err())
		}
	}
	return b.results
}

type batch struct {
	*Engine
	ctx       context.Context //nolint:containedctx // the batch exists during one call
	queue     string
	jobs      []*broker.OutgoingJob
	results   []broker.SendResult
	isDone    []bool
	doneCount int
	// explanations has why the queue rejects jobs, by their priority and whether they are delayed.
	explanations map[string]error
}

func (b *batch) handleReply(reply *nats.Msg) {
	i, err := strconv.Atoi(priorityFromSubject(reply.Subject))
	if err != nil || i < 0 || i >= len(b.jobs) || b.isDone[i] {
		return // nobody requested the message
	}
	job := b.jobs[i]
	result, err := confirmation(job, b.results[i].ID, reply, nil)
	if errors.Is(err, errRejectedSubject) {
		key := job.PriorityName() + "/" + strconv.FormatBool(job.IsDelayed(time.Now()))
		explanation, found := b.explanations[key]
		if !found {
			explanation = cmp.Or(b.explainRejection(b.ctx, job), err)
			b.explanations[key] = explanation
		}
		err = explanation
	}
	b.finish(i, result, b.sendError(b.ctx, job, err))
}

func (b *batch) finish(i int, result broker.SendResult, err error) {
	result.Err = err
	b.isDone[i], b.results[i] = true, result
	b.doneCount++
}

func (b *batch) failRest(err error) {
	for i, job := range b.jobs {
		if !b.isDone[i] {
			b.finish(i, broker.SendResult{}, b.sendError(b.ctx, job, err))
		}
	}
}

// outgoingMessage encodes a job, as docs/reference/wire-contract.md describes. The ID is empty if the server assigns it,
// because a message without headers is cheaper.
func outgoingMessage(job *broker.OutgoingJob, now time.Time) (message *nats.Msg, id string) {
	headers, isDelayed := nats.Header(job.CommonHeaders()), job.IsDelayed(now)
	if headers == nil && (job.Kind != "" || job.HasChosenID || isDelayed) {
		headers = nats.Header{}
	}
	message = &nats.Msg{Subject: readySubject(job.Queue, job.PriorityName()), Data: job.Payload, Header: headers}
	if job.Kind != "" {
		headers.Set(broker.KindHeader, job.Kind)
	}
	if job.HasChosenID {
		id = job.ID
		headers.Set(jetstream.MsgIDHeader, id)
	}
	if isDelayed {
		id = job.ChosenOrRandomID()
		headers.Set(broker.JobIDHeader, id) // the server removes its own header from a delayed message
		headers.Set(jetstream.ScheduleHeader, scheduleAt+job.DueTime.UTC().Format(time.RFC3339Nano))
		headers.Set(jetstream.ScheduleTargetHeader, dueSubject(job.Queue, job.PriorityName(), delayedToken(id)))
		// Without this header, the message would replace a delayed message with the same subject.
		headers.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
		message.Subject = delayedSubject(job.Queue, delayedToken(id))
	}
	return message, id
}

const scheduleAt = "@at "

// delayedToken returns the ID of a delayed job as a token of a subject. An ID that cannot be a token is encoded, after a character with
// which no other ID begins.
func delayedToken(id string) string {
	if isName(id) {
		return id
	}
	return "~" + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// errRejectedSubject: no stream accepts the subject, or the target of a delayed message.
var errRejectedSubject = errors.New("no stream accepts the job")

type answer struct {
	Error     *jetstream.APIError `json:"error"`
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
}

func decodeAnswer(reply *nats.Msg) (a answer, err error) {
	if err = json.Unmarshal(reply.Data, &a); err != nil {
		err = fmt.Errorf("the server's answer is invalid: %w", err)
	}
	return a, err
}

// confirmation reads the server's answer to a message. Without an ID, the sequence number is the ID of the job.
func confirmation(job *broker.OutgoingJob, id string, reply *nats.Msg, err error) (broker.SendResult, error) {
	switch {
	case errors.Is(err, nats.ErrNoResponders), err == nil && len(reply.Data) == 0 && reply.Header.Get("Status") == noRespondersStatus:
		return broker.SendResult{}, errRejectedSubject
	case err != nil:
		return broker.SendResult{}, err
	}
	a, err := decodeAnswer(reply)
	isPostponed := a.Stream == delayedStreamName(job.Queue) && !job.DueTime.IsZero()
	switch {
	case err != nil:
		return broker.SendResult{}, err
	case a.Error == nil && isPostponed:
		return broker.SendResult{ID: id, Duplicate: a.Duplicate}, nil // its number is not that of the message which becomes ready
	case a.Error == nil && a.Stream != streamName(job.Queue):
		return broker.SendResult{}, broker.Errorf(broker.ClassInvalid, "the stream %s received the job, should be %s",
			broker.TruncateText(a.Stream), streamName(job.Queue))
	case a.Error == nil:
		if id == "" {
			id = strconv.FormatUint(a.Sequence, 10)
		}
		return broker.SendResult{ID: id, Duplicate: a.Duplicate, Sequence: a.Sequence}, nil
	case isSubjectTaken(a.Error) && job.IsDelayed(time.Time{}):
		return broker.SendResult{ID: id, Duplicate: true}, nil // the job with this ID is not due yet
	case a.Error.ErrorCode == errorCodeScheduleTarget:
		return broker.SendResult{}, errRejectedSubject
	}
	return broker.SendResult{}, refusal(a.Error)
}

const (
	noRespondersStatus = "503"

	// Error codes of the server that its client library does not define.
	errorCodeAccountLimit       jetstream.ErrorCode = 10002
	errorCodeMessageTooLarge    jetstream.ErrorCode = 10054
	errorCodeStoreFailed        jetstream.ErrorCode = 10077
	errorCodeHeaderTooLarge     jetstream.ErrorCode = 10097
	errorCodeSealed             jetstream.ErrorCode = 10109
	errorCodeWrongSequence      jetstream.ErrorCode = 10071
	errorCodeWrongSequenceConst jetstream.ErrorCode = 10164
	errorCodeTTLDisabled        jetstream.ErrorCode = 10166
	errorCodeScheduleTarget     jetstream.ErrorCode = 10190
)

func isSubjectTaken(err *jetstream.APIError) bool {
	return err.ErrorCode == errorCodeWrongSequence || err.ErrorCode == errorCodeWrongSequenceConst
}

// limitTexts are a server's descriptions of the limits of a stream, because it has the same error code for all reasons not to store
// a message.
var limitTexts = []string{"maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded"}

// refusal returns the SendError for an error with which the server refused a message.
func refusal(err *jetstream.APIError) error {
	text := broker.TruncateText(err.Description)
	switch err.ErrorCode {
	case errorCodeStoreFailed:
		if slices.Contains(limitTexts, err.Description) {
			return broker.FieldFailure(broker.ErrQueueFull, "queue", "is full: %s", text)
		}
	case errorCodeMessageTooLarge, errorCodeHeaderTooLarge:
		return broker.FieldFailure(broker.ErrPayloadTooLarge, "payload", "is too large: %s", text)
	case errorCodeSealed:
		return broker.FieldFailure(broker.ErrDraining, "queue", "is draining: %s", text)
	}
	if err.ErrorCode == errorCodeAccountLimit || err.Code == http.StatusTooManyRequests || err.Code >= http.StatusInternalServerError {
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: fmt.Errorf("the server refused the job: %s", text)}
	}
	return &broker.SendError{Failure: broker.ErrInvalidJob, Err: fmt.Errorf("the server refused the job: %s", text)}
}

func (e *Engine) sendError(ctx context.Context, job *broker.OutgoingJob, err error) error {
	switch {
	case err == nil, errors.As(err, new(*broker.SendError)):
		return err
	case errors.Is(err, nats.ErrConnectionClosed) && e.nc.IsClosed():
		if e.isDisconnected.Load() {
			return &broker.SendError{Failure: broker.ErrClosed, Err: err}
		}
		// The callback comes soon, so that the next call of the producer finds that the connection has ended.
		<-e.ended
		if last := e.nc.LastError(); last != nil { // why the server ended the connection
			err = e.credentials.Conceal(fmt.Errorf("%w: %w", err, last), true)
		}
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: broker.Errorf(broker.ClassUnreachable, "%w", err)}
	case errors.Is(err, errRejectedSubject):
		return &broker.SendError{Failure: broker.ErrUnavailable, Err: errors.New("no server leads the stream of the queue " + job.Queue)}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return broker.SendErrorOf(e.classifyError("sending a job to the queue "+job.Queue, err))
}

const lookUpTimeout = 2 * time.Second

// explainRejection returns why no stream accepts a job; nil if the stream should accept it, but has no leader.
func (e *Engine) explainRejection(ctx context.Context, job *broker.OutgoingJob) error {
	config, err := e.sendableStream(ctx, job)
	if err != nil {
		return err
	}
	subject := readySubject(job.Queue, job.PriorityName())
	switch {
	case slices.Contains(config.Subjects, placeholderSubject(job.Queue)), config.Sealed:
		return broker.DrainingQueue(job.Queue)
	case !slices.Contains(config.Subjects, subject):
		var priorities []string
		for _, known := range config.Subjects {
			if priority, isReady := strings.CutPrefix(known, readySubject(job.Queue, "")); isReady {
				priorities = append(priorities, priority)
			}
		}
		return broker.FieldFailure(broker.ErrUnknownPriority, "priority", "is %q; the queue %s has %s",
			job.PriorityName(), job.Queue, strings.Join(priorities, ", "))
	case job.IsDelayed(time.Time{}) && config.AllowMsgSchedules:
		return broker.UnsupportedField("at", "is not supported by the queue %s: a version before v0.1 created it; drain, delete and create its Queue again", job.Queue)
	case job.IsDelayed(time.Time{}) && len(config.Sources) == 0:
		return broker.UnsupportedField("at", "is not supported by the queue %s: NATS JetStream delays jobs from server version %s", job.Queue, delayingServerVersion)
	}
	return nil
}

func (e *Engine) sendableStream(ctx context.Context, job *broker.OutgoingJob) (*jetstream.StreamConfig, error) {
	lookUp, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	stream, err := e.js.Stream(lookUp, streamName(job.Queue))
	switch {
	case err == nil:
		return &stream.CachedInfo().Config, nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, broker.UnknownQueue(job.Queue)
	case ctx.Err() != nil, errorClassOf(err) != broker.ClassUnreachable:
		return nil, e.sendError(ctx, job, err)
	}
	// The login may lack the permission for the request.
	return nil, broker.FieldFailure(broker.ErrUnknownQueue, "queue", "is unknown: the broker has no queue %s, or it has no priority %q, "+
		"or rejects new jobs: the broker did not answer which of them", job.Queue, job.PriorityName())
}

// lastDueTime is the last time for which the server can wait, because it counts nanoseconds since 1970. It would deliver a job that
// is due later at once.
var lastDueTime = time.Unix(0, math.MaxInt64)

// checkSupport returns an error if the server cannot wait until the job is due, or forgets IDs before the job requires.
func (e *Engine) checkSupport(ctx context.Context, job *broker.OutgoingJob) error {
	if job.DueTime.After(lastDueTime) {
		return broker.UnsupportedField("at", "is %s; NATS JetStream delays jobs until %s at most",
			job.DueTime.UTC().Format(time.DateOnly), lastDueTime.UTC().Format(time.DateOnly))
	}
	if job.DeduplicateFor == 0 {
		return nil
	}
	config, err := e.sendableStream(ctx, job)
	if err != nil {
		return err
	}
	if job.DeduplicateFor > config.Duplicates {
		return broker.UnsupportedField("deduplicateFor", "is %s; on NATS JetStream, the queue %s deduplicates for %s",
			job.DeduplicateFor, job.Queue, config.Duplicates)
	}
	return nil
}
