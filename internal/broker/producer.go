package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Producer sends jobs to queues. The engines implement it. Its errors are SendErrors.
type Producer interface {
	// Send stores a valid job in its queue. It returns after the confirmation of the broker, or when ctx ends.
	Send(ctx context.Context, job *OutgoingJob) (SendResult, error)
	// SendMany sends valid jobs of a queue without waiting for the confirmation of each job before it sends the next. It returns a result for
	// each job, in the same order.
	SendMany(ctx context.Context, queue string, jobs []*OutgoingJob) []SendResult
	// CancelDelayed removes a job that is not due yet. It returns false if the queue has no such job.
	CancelDelayed(ctx context.Context, queue, id string) (bool, error)
	// Disconnect closes the connection.
	Disconnect()
}

// SendResult is the answer of the broker.
type SendResult struct {
	// ID of the job, which its producer chose or the engine assigned.
	ID string
	// Duplicate: the queue has another job with this ID, and did not store this job.
	Duplicate bool
	// Sequence is the number of the message in its stream; 0: the engine has no such number.
	Sequence uint64
	Err      error // only in the results of SendMany
}

// OutgoingJob is a job that a producer sends.
type OutgoingJob struct {
	// Queue is the name of the queue on the broker.
	Queue string
	// ID identifies the job in its queue. HasChosenID: the producer chose it, so the broker deduplicates. Otherwise, the engine assigns an
	// ID.
	ID          string
	HasChosenID bool
	Payload     []byte
	Headers     map[string][]string
	// Priority is the name of a priority. Empty: DefaultPriority.
	Priority string
	// Kind selects the handler of the job. Optional.
	Kind string
	// Timeout replaces JobTimeout of the queue. 0: JobTimeout applies.
	Timeout time.Duration
	// DueTime is when workers may start the job. Zero: at once.
	DueTime time.Time
	// IsTracked: the state of the job is recorded when it is sent.
	IsTracked bool
	// IsUnique: the queue accepts one job with UniqueKey until the job has ended, or for UniqueFor if IsUniqueFor. Package jobkeys reserves
	// the key, and sets Holder.
	IsUnique    bool
	UniqueKey   string
	IsUniqueFor bool
	UniqueFor   time.Duration
	Holder      string
	// BatchID is the batch of the job, and BatchMember its number in it, or FinalMember. Optional.
	BatchID, BatchMember string
	// DeduplicateFor is the minimum time for which the broker must recognize duplicates. 0: the time of the engine.
	DeduplicateFor time.Duration
}

// DefaultPriority is the only priority of a queue that defines none.
const DefaultPriority = "default"

// Bounds of the fields of an OutgoingJob.
const (
	MaxChosenIDBytes = 128
	MaxKindBytes     = 128
	MaxUniqueBytes   = 128
	// MaxUniqueFor bounds UniqueFor.
	MaxUniqueFor = 365 * 24 * time.Hour
	// MaxHeaderBytes is half of the maximum of a NATS server, because a dead letter has more headers.
	MaxHeaderBytes = 32 << 10
)

var (
	// jobIDPattern excludes ~, because the asynq engine appends ~ and more to the ID of a requeued job.
	jobIDPattern      = regexp.MustCompile(`^[\x21-\x7d]+$`)
	kindPattern       = regexp.MustCompile(`^[\x21-\x7e]+$`)
	headerNamePattern = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
	// reservedHeaderPrefixes are prefixes of headers with a meaning for brokers and workers.
	reservedHeaderPrefixes = []string{HeaderPrefix, "Nats-", "Asynq-"}
)

// maxDueTime is the last time that RFC 3339 and the engines can express.
var maxDueTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Validate returns a SendError that names the first invalid field.
func (j *OutgoingJob) Validate() error {
	err := cmp.Or(j.validateQueue(), j.validateID())
	switch {
	case err != nil:
		return err
	case j.IsUnique && (len(j.UniqueKey) > MaxUniqueBytes || !kindPattern.MatchString(j.UniqueKey)):
		return InvalidField("unique", "is %q, must be 1 to %d printable ASCII characters other than spaces", shorten(j.UniqueKey), MaxUniqueBytes)
	case j.IsUniqueFor && (j.UniqueFor < time.Second || j.UniqueFor > MaxUniqueFor):
		return InvalidField("uniqueFor", "is %s, must be %s to %s", j.UniqueFor, time.Second, MaxUniqueFor)
	case j.Kind != "" && (len(j.Kind) > MaxKindBytes || !kindPattern.MatchString(j.Kind)):
		return InvalidField("kind", "is %q, must be at most %d printable ASCII characters other than spaces", shorten(j.Kind), MaxKindBytes)
	case j.Timeout != 0 && !isJobTimeout(j.Timeout):
		return InvalidField("timeout", "is %s, must be %s to %s", j.Timeout, MinJobTimeout, MaxJobTimeout)
	case j.DueTime.After(maxDueTime):
		return InvalidField("at", "is after the year 9999")
	}
	return j.validateHeaders()
}

func (j *OutgoingJob) validateQueue() error {
	if !queueNamePattern.MatchString(j.Queue) {
		return InvalidField("queue", "is %q, must be one name, or a namespace, a name and a cluster joined by underscores", shorten(j.Queue))
	}
	if j.Priority != "" && !namePattern.MatchString(j.Priority) {
		return InvalidField("priority", "is %q, must be at most 63 of a-z, 0-9 and -", shorten(j.Priority))
	}
	return nil
}

// ValidateJobReference returns an error unless a job with this ID can be in this queue.
func ValidateJobReference(queue, id string) error {
	job := OutgoingJob{Queue: queue, ID: id, HasChosenID: true}
	return cmp.Or(job.validateQueue(), job.validateID())
}

// ValidateStoredJob returns an error unless a job with this ID can be in this queue. Producers in other languages can choose IDs that are
// invalid in an OutgoingJob.
func ValidateStoredJob(queue, id string) error {
	if err := (&OutgoingJob{Queue: queue}).validateQueue(); err != nil {
		return err
	}
	if !IsIdentifier(id) {
		return InvalidField("id", "is %q, must be 1 to %d bytes of UTF-8 without control characters", shorten(id), maxIdentifierBytes)
	}
	return nil
}

func (j *OutgoingJob) validateID() error {
	switch {
	case j.HasChosenID && (len(j.ID) > MaxChosenIDBytes || !jobIDPattern.MatchString(j.ID)):
		return InvalidField("id", "is %q, must be 1 to %d printable ASCII characters other than spaces and ~", shorten(j.ID), MaxChosenIDBytes)
	case j.DeduplicateFor < 0:
		return InvalidField("deduplicateFor", "is %s, must not be negative", j.DeduplicateFor)
	case j.DeduplicateFor > 0 && !j.HasChosenID:
		return InvalidField("deduplicateFor", "requires an ID")
	}
	return nil
}

func (j *OutgoingJob) validateHeaders() error {
	size := 0
	for name, values := range j.Headers {
		field := "headers[" + shorten(name) + "]"
		if !headerNamePattern.MatchString(name) {
			return InvalidField(field, "has an invalid name: use letters, digits and -")
		}
		if slices.ContainsFunc(reservedHeaderPrefixes, func(prefix string) bool { return HasPrefixFold(name, prefix) }) {
			return InvalidField(field, "has a reserved prefix: use the options for the ID, the kind, the time and the timeout")
		}
		for _, value := range values {
			// Encoders change such values without an error.
			if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) || strings.TrimSpace(value) != value {
				return InvalidField(field, "has a value that is not UTF-8, has a control character, or begins or ends with a space")
			}
			size += len(name) + len(value)
		}
	}
	if size > MaxHeaderBytes {
		return InvalidField("headers", "have %d bytes, must have at most %d", size, MaxHeaderBytes)
	}
	return nil
}

// ChosenOrRandomID returns the ID that the producer chose, or else a random ID.
func (j *OutgoingJob) ChosenOrRandomID() string {
	if j.HasChosenID {
		return j.ID
	}
	return rand.Text()
}

// PriorityName returns Priority, or else DefaultPriority.
func (j *OutgoingJob) PriorityName() string { return cmp.Or(j.Priority, DefaultPriority) }

// IsDelayed reports whether workers may not start the job yet.
func (j *OutgoingJob) IsDelayed(now time.Time) bool { return j.DueTime.After(now) }

// CommonHeaders returns the headers that the job has on every engine: the headers of the producer, the timeout, and the headers of unique
// jobs and batches. It is nil without headers, as for most jobs.
func (j *OutgoingJob) CommonHeaders() map[string][]string {
	keepsKey := j.IsUnique && !j.IsUniqueFor
	if len(j.Headers) == 0 && j.Timeout == 0 && !keepsKey && j.BatchID == "" {
		return nil
	}
	all := make(map[string][]string, len(j.Headers)+1)
	if keepsKey {
		all[UniqueHeader] = []string{j.UniqueKey}
	}
	if j.BatchID != "" {
		all[BatchHeader], all[MemberHeader] = []string{j.BatchID}, []string{j.BatchMember}
	}
	if keepsKey || j.BatchMember == FinalMember {
		all[HolderHeader] = []string{j.Holder}
	}
	for name, values := range j.Headers {
		if len(values) > 0 {
			all[name] = values
		}
	}
	if j.Timeout > 0 {
		all[TimeoutHeader] = []string{j.Timeout.String()}
	}
	return all
}

func shorten(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + truncated
	}
	return strings.ToValidUTF8(text, "?")
}

// Why a job was not sent.
var (
	// ErrInvalidJob: a field of the job is invalid.
	ErrInvalidJob = errors.New("invalid job")
	// ErrUnknownQueue: the broker has no such queue.
	ErrUnknownQueue = errors.New("unknown queue")
	// ErrUnknownPriority: the queue has no such priority.
	ErrUnknownPriority = errors.New("unknown priority")
	// ErrDraining: the queue rejects new jobs, because it will be deleted.
	ErrDraining = errors.New("the queue is draining")
	// ErrQueueFull: the queue has maxBacklog jobs. A retry may succeed.
	ErrQueueFull = errors.New("the queue is full")
	// ErrPayloadTooLarge: the broker does not accept a message of this size.
	ErrPayloadTooLarge = errors.New("the payload is too large")
	// ErrUnsupported: the engine, or the queue, does not support a field.
	ErrUnsupported = errors.New("unsupported")
	// ErrKeyTaken: another job has the unique key.
	ErrKeyTaken = errors.New("another job has the unique key")
	// ErrUnauthorized: the broker rejects the credentials, or does not permit the request.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrUnavailable: the broker did not confirm the job, and may have stored it. A retry may succeed.
	ErrUnavailable = errors.New("the broker has not confirmed the job")
	// ErrClosed: the producer was closed.
	ErrClosed = errors.New("the client is closed")
)

// SendError is why a job was not sent.
type SendError struct {
	// Failure is one of the variables above.
	Failure error
	// Field of the job that caused the error; otherwise empty.
	Field string
	// KeyHolder is the ID of the job that has the unique key, if Failure is ErrKeyTaken.
	KeyHolder string
	Err       error
}

func (e *SendError) Error() string {
	if e.Field != "" {
		return e.Field + " " + e.Err.Error()
	}
	return e.Err.Error()
}

// Unwrap returns the failure and the cause.
func (e *SendError) Unwrap() []error { return []error{e.Failure, e.Err} }

// InvalidField returns an error about an invalid field.
func InvalidField(field, format string, values ...any) error {
	return FieldFailure(ErrInvalidJob, field, format, values...)
}

// UnsupportedField returns an error about a field that an engine does not support.
func UnsupportedField(field, format string, values ...any) error {
	return FieldFailure(ErrUnsupported, field, format, values...)
}

// FieldFailure returns an error about a field. Its text begins with the field.
func FieldFailure(failure error, field, format string, values ...any) error {
	return &SendError{Failure: failure, Field: field, Err: fmt.Errorf(format, values...)}
}

// UnknownQueue returns the error of a queue that the broker does not have.
func UnknownQueue(queue string) error {
	return FieldFailure(ErrUnknownQueue, "queue", "is unknown: the broker has no queue %s", queue)
}

// DrainingQueue returns the error of a queue that rejects new jobs.
func DrainingQueue(queue string) error {
	return FieldFailure(ErrDraining, "queue", "is draining: the queue %s is being deleted and rejects new jobs", queue)
}

// SendErrorOf returns a classified error as a SendError. It returns a SendError unchanged.
func SendErrorOf(err error) error {
	if err == nil || errors.As(err, new(*SendError)) {
		return err
	}
	failure := ErrUnavailable
	switch ClassOf(err) {
	case ClassUnauthorized:
		failure = ErrUnauthorized
	case ClassInvalid:
		failure = ErrInvalidJob
	case ClassTooLarge:
		failure = ErrPayloadTooLarge
	case ClassNotFound:
		return &SendError{Failure: ErrUnknownQueue, Field: "queue", Err: err}
	}
	return &SendError{Failure: failure, Err: err}
}
