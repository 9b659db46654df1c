package jetstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Send implements broker.Producer. A stream without a leader has no responder for a moment, so Send repeats the
// request as long as the stream exists.
func (e *Engine) Send(ctx context.Context, job *broker.OutgoingJob) (broker.SendResult, error) {
	if err := e.checkWindow(ctx, job); err != nil {
		return broker.SendResult{}, err
	}
	message := e.outgoingMessage(job, time.Now())
	for {
		reply, err := e.nc.RequestMsgWithContext(ctx, message)
		duplicate, err := e.confirmation(job, reply, err)
		if !isRejectedSubject(err) {
			return broker.SendResult{Duplicate: duplicate}, e.sendError(ctx, job, err)
		}
		if err := e.explainRejection(ctx, job); err != nil {
			return broker.SendResult{}, err
		}
		select {
		case <-ctx.Done():
			return broker.SendResult{}, e.sendError(ctx, job, ctx.Err())
		case <-time.After(leaderRetryInterval):
		}
	}
}

// leaderRetryInterval is the time between two requests to a stream without a leader.
const leaderRetryInterval = 250 * time.Millisecond

// SendMany implements broker.Producer. It sends all jobs before it waits, so the caller limits their number. It
// does not repeat requests.
func (e *Engine) SendMany(ctx context.Context, queue string, jobs []*broker.OutgoingJob) []broker.SendResult {
	b := &batch{Engine: e, ctx: ctx, queue: queue, jobs: jobs, results: make([]broker.SendResult, len(jobs)), isDone: make([]bool, len(jobs))}
	replies := make(chan *nats.Msg, len(jobs))
	inbox := e.nc.NewInbox()
	subscription, err := e.nc.ChanSubscribe(inbox+".*", replies)
	if err != nil {
		b.failRest(err)
		return b.results
	}
	defer func() { _ = subscription.Unsubscribe() }()
	b.sendAll(inbox)
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

// batch is one call of SendMany.
type batch struct {
	*Engine
	ctx       context.Context //nolint:containedctx // the batch exists during one call
	queue     string
	jobs      []*broker.OutgoingJob
	results   []broker.SendResult
	isDone    []bool
	doneCount int
	// explanations are why the queue rejects a subject, so that each is found once.
	explanations map[string]error
}

func (b *batch) sendAll(inbox string) {
	now := time.Now()
	for i, job := range b.jobs {
		if err := b.checkWindow(b.ctx, job); err != nil {
			b.finish(i, false, err)
			continue
		}
		message := b.outgoingMessage(job, now)
		message.Reply = inbox + "." + strconv.Itoa(i)
		if err := b.nc.PublishMsg(message); err != nil {
			b.finish(i, false, b.sendError(b.ctx, job, err))
		}
	}
}

func (b *batch) handleReply(reply *nats.Msg) {
	i, err := strconv.Atoi(priorityFromSubject(reply.Subject))
	if err != nil || i < 0 || i >= len(b.jobs) || b.isDone[i] {
		return // a server that sends what nobody requested
	}
	job := b.jobs[i]
	duplicate, err := b.confirmation(job, reply, nil)
	if isRejectedSubject(err) {
		err = b.explainOnce(job, err)
	}
	b.finish(i, duplicate, b.sendError(b.ctx, job, err))
}

func (b *batch) explainOnce(job *broker.OutgoingJob, unexplained error) error {
	key := job.PriorityName() + "/" + strconv.FormatBool(job.IsDelayed(time.Now()))
	explanation, found := b.explanations[key]
	if !found {
		if explanation = b.explainRejection(b.ctx, job); explanation == nil {
			explanation = unexplained
		}
		if b.explanations == nil {
			b.explanations = map[string]error{}
		}
		b.explanations[key] = explanation
	}
	return explanation
}

func (b *batch) finish(i int, duplicate bool, err error) {
	b.isDone[i], b.results[i] = true, broker.SendResult{Duplicate: duplicate, Err: err}
	b.doneCount++
}

// failRest ends the batch.
func (b *batch) failRest(err error) {
	for i, job := range b.jobs {
		if !b.isDone[i] {
			b.finish(i, false, b.sendError(b.ctx, job, err))
		}
	}
}

// outgoingMessage encodes a job. docs/wire-contract.md describes the result.
func (e *Engine) outgoingMessage(job *broker.OutgoingJob, now time.Time) *nats.Msg {
	message := &nats.Msg{Subject: readySubject(job.Queue, job.PriorityName()), Data: job.Payload, Header: nats.Header(job.CommonHeaders())}
	isDelayed := job.IsDelayed(now)
	if job.Kind != "" {
		message.Header.Set(broker.KindHeader, job.Kind)
	}
	if job.HasChosenID {
		message.Header.Set(jetstream.MsgIDHeader, job.ID)
	}
	if !job.HasChosenID || isDelayed { // the server removes its own header from a delayed message
		message.Header.Set(broker.JobIDHeader, job.ID)
	}
	if isDelayed {
		message.Header.Set(jetstream.ScheduleHeader, "@at "+job.DueTime.UTC().Format(time.RFC3339Nano))
		message.Header.Set(jetstream.ScheduleTargetHeader, message.Subject)
		// Otherwise the message would replace one with the same subject, which is not due yet.
		message.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
		message.Subject = delayedSubject(job.Queue, job.ID)
	}
	return message
}

// delayedSubject is the subject on which a job waits until it is due. An ID that cannot be a token of a
// subject is encoded, after a character that no other ID begins with.
func delayedSubject(queue, id string) string {
	token := id
	if !isName(id) {
		token = "~" + base64.RawURLEncoding.EncodeToString([]byte(id))
	}
	return subjectPrefix + queue + ".delayed." + token
}

// errRejectedSubject: no stream accepts the subject, or the target of a delayed message.
var errRejectedSubject = errors.New("no stream accepts the job")

func isRejectedSubject(err error) bool { return errors.Is(err, errRejectedSubject) }

// confirmation reads the server's answer to a message.
func (e *Engine) confirmation(job *broker.OutgoingJob, reply *nats.Msg, err error) (duplicate bool, _ error) {
	switch {
	case errors.Is(err, nats.ErrNoResponders), err == nil && len(reply.Data) == 0 && reply.Header.Get("Status") == noRespondersStatus:
		return false, errRejectedSubject
	case err != nil:
		return false, err
	}
	var answer struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return false, fmt.Errorf("the server's answer is invalid: %w", err)
	}
	switch {
	case answer.Error == nil && answer.Stream != streamName(job.Queue):
		return false, broker.Errorf(broker.ClassInvalid, "the stream %s received the job, should be %s",
			broker.TruncateText(answer.Stream), streamName(job.Queue))
	case answer.Error == nil:
		return answer.Duplicate, nil
	case isSubjectTaken(answer.Error) && job.IsDelayed(time.Time{}):
		return true, nil // the job with this ID is not due yet
	case answer.Error.ErrorCode == errorCodeScheduleTarget:
		return false, errRejectedSubject
	}
	return false, refusal(answer.Error)
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
	errorCodeScheduleTarget     jetstream.ErrorCode = 10190
)

func isSubjectTaken(err *jetstream.APIError) bool {
	return err.ErrorCode == errorCodeWrongSequence || err.ErrorCode == errorCodeWrongSequenceConst
}

// limitTexts are how a server describes the limits of a stream: it has one error code for everything that
// prevents storing a message.
var limitTexts = []string{"maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded"}

// refusal is why the server did not store a message.
func refusal(err *jetstream.APIError) error {
	text := broker.TruncateText(err.Description)
	switch err.ErrorCode {
	case errorCodeStoreFailed:
		if slices.Contains(limitTexts, err.Description) {
			return broker.FieldFailure(broker.FailureQueueFull, "queue", "is full: %s", text)
		}
	case errorCodeMessageTooLarge, errorCodeHeaderTooLarge:
		return broker.FieldFailure(broker.FailurePayloadTooLarge, "payload", "is too large: %s", text)
	case errorCodeSealed:
		return broker.FieldFailure(broker.FailureDraining, "queue", "is draining: %s", text)
	}
	if err.ErrorCode == errorCodeAccountLimit || err.Code == http.StatusTooManyRequests || err.Code >= http.StatusInternalServerError {
		return &broker.SendError{Failure: broker.FailureUnavailable, Err: fmt.Errorf("the server refused the job: %s", text)}
	}
	return &broker.SendError{Failure: broker.FailureInvalid, Err: fmt.Errorf("the server refused the job: %s", text)}
}

// sendError adds the queue and the failure to an error of a request.
func (e *Engine) sendError(ctx context.Context, job *broker.OutgoingJob, err error) error {
	switch {
	case err == nil, errors.As(err, new(*broker.SendError)):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return broker.FieldFailure(broker.FailurePayloadTooLarge, "payload", "has %d bytes; with the headers, the server accepts at most %d",
			len(job.Payload), e.nc.MaxPayload())
	case errors.Is(err, nats.ErrConnectionClosed) && e.nc.IsClosed():
		return &broker.SendError{Failure: broker.FailureClosed, Err: err}
	case isRejectedSubject(err):
		return &broker.SendError{Failure: broker.FailureUnavailable, Err: errors.New("no server leads the stream of the queue " + job.Queue)}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return broker.SendErrorOf(e.classifyError("sending a job to the queue "+job.Queue, err))
}

// lookUpTimeout bounds the request for the reason of a rejection.
const lookUpTimeout = 2 * time.Second

// explainRejection returns why no stream accepts a job; nil if the stream should, but has no leader.
func (e *Engine) explainRejection(ctx context.Context, job *broker.OutgoingJob) error {
	config, err := e.sendableStream(ctx, job)
	if err != nil {
		return err
	}
	subject := readySubject(job.Queue, job.PriorityName())
	switch {
	case slices.Contains(config.Subjects, placeholderSubject(job.Queue)), config.Sealed:
		return broker.FieldFailure(broker.FailureDraining, "queue", "is draining: the queue %s is being deleted and rejects new jobs", job.Queue)
	case !slices.Contains(config.Subjects, subject):
		return broker.FieldFailure(broker.FailureUnknownPriority, "priority", "is %q; the queue %s has %s",
			job.PriorityName(), job.Queue, strings.Join(prioritiesOf(config), ", "))
	case job.IsDelayed(time.Time{}) && !config.AllowMsgSchedules:
		return broker.UnsupportedField("at", "is not supported by the queue %s: NATS JetStream delays jobs from server version %s, "+
			"in queues that were created without maxBacklog", job.Queue, schedulingServerVersion)
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
		return nil, broker.FieldFailure(broker.FailureUnknownQueue, "queue", "is unknown: the broker has no queue %s", job.Queue)
	case ctx.Err() != nil, errorClassOf(err) != broker.ClassUnreachable:
		return nil, e.sendError(ctx, job, err)
	}
	// The login may lack the permission for the request.
	return nil, broker.FieldFailure(broker.FailureUnknownQueue, "queue", "is unknown: the broker has no queue %s, or it has no priority %q, "+
		"or rejects new jobs: the broker did not answer which of them", job.Queue, job.PriorityName())
}

// prioritiesOf lists the priorities of a queue that accepts jobs.
func prioritiesOf(config *jetstream.StreamConfig) (names []string) {
	for _, subject := range config.Subjects {
		if !strings.HasSuffix(subject, ">") {
			names = append(names, priorityFromSubject(subject))
		}
	}
	return names
}

// checkWindow returns an error if the server forgets IDs before the job requires.
func (e *Engine) checkWindow(ctx context.Context, job *broker.OutgoingJob) error {
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
