package broker

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// Engine is a connection to a broker that holds queues. Its methods are safe for concurrent use, and their errors have a class.
type Engine interface {
	// Capabilities returns who enforces which field of a QueueConfig.
	Capabilities() Capabilities

	// EnsureQueue creates or updates the queue, and reports drift.
	EnsureQueue(ctx context.Context, queue QueueConfig) (EnsureResult, error)
	// Stats returns the statistics of a queue, with few and cheap requests.
	Stats(ctx context.Context, queue string) (QueueStats, error)
	// WaitForMessage returns when the queue has a message for workers, a retry is due, or ctx ends.
	WaitForMessage(ctx context.Context, queue string) error
	// Rescue makes dead letters of messages that the broker no longer delivers.
	Rescue(ctx context.Context, queue string) (RescueResult, error)
	// DeadLetters returns the dead letters of a queue.
	DeadLetters(queue string) DeadLetterQueue

	// Subscribe returns the messages of a queue to a worker.
	Subscribe(ctx context.Context, queue string) (Subscription, error)

	// RejectNewMessages makes the queue reject new messages, so that it drains.
	RejectNewMessages(ctx context.Context, queue string, owner QueueOwner) error
	// ReleaseOwnership leaves the queue as it is, for another owner in the same scope.
	ReleaseOwnership(ctx context.Context, queue string, owner QueueOwner) error
	// DeleteQueue deletes the queue with its messages and dead letters. It succeeds if the queue does not exist.
	DeleteQueue(ctx context.Context, queue string, owner QueueOwner) error

	// Disconnect closes the connection.
	Disconnect()
}

// MaxRescued bounds the number of messages that a call of Rescue makes dead letters.
const MaxRescued = 100

// RescueResult is what Rescue found.
type RescueResult struct {
	// Rescued is the number of messages that became dead letters, at most MaxRescued.
	Rescued int
	// Stranded is the number of stored messages that are neither deliverable nor delayed nor dead. Nil: unknown.
	Stranded *int64
}

// EnsureResult is the result of EnsureQueue.
type EnsureResult struct {
	// Created: the queue did not exist.
	Created bool
	// Updated: the configuration has changed since it was last applied.
	Updated bool
	// Drift lists settings that someone else changed since they were last applied.
	Drift []SettingDifference
	// ErasedDelayed: someone else erased the delayed messages since the last call.
	ErasedDelayed bool
	// Corrected: EnsureQueue reverted the drift.
	Corrected bool
	// Enforcement is who enforces which field of this queue.
	Enforcement Capabilities
	// Storage is how the broker stores the queue; nil if unknown.
	Storage *StorageState
	// EvictionPolicy is the policy by which the broker deletes messages when its memory is full; empty if it deletes none, or if unknown.
	EvictionPolicy string
	// RetiringPriorities are no longer in the configuration; they are deleted once empty.
	RetiringPriorities []string
}

// SettingDifference is a setting on the broker that differs from the configuration.
type SettingDifference struct {
	Object, Setting string // on the broker
	Want, Found     string
}

func (d SettingDifference) String() string {
	return d.Object + ": " + d.Setting + " is " + d.Found + ", should be " + d.Want
}

// QueueStats is the state of a queue at MeasuredTime.
type QueueStats struct {
	// Ready is the number of messages that workers can receive.
	Ready int64
	// InFlight is the number of messages delivered to workers. With RetriesInFlight, it includes messages that wait for a retry, also when
	// they are due; RetryDue is true if such a message is due.
	InFlight        int64
	RetriesInFlight bool
	RetryDue        bool
	// Delayed is the number of messages that are not due yet, or stranded.
	Delayed int64
	// Postponed is how many of the delayed messages TotalArrivals does not count before they are due.
	Postponed int64
	// Overdue: a delayed message is due, the queue has space for it, and the broker has not moved it for some time.
	Overdue     bool
	DeadLetters int64
	// OldestReadyTime is when the oldest ready message was sent; zero if none is ready.
	OldestReadyTime time.Time
	// TotalArrivals is the cumulative number of messages received. It never decreases.
	TotalArrivals uint64
	// MeasuredTime is the time of the measurement by the clock of the broker.
	MeasuredTime time.Time
	// Missing are the parts of the queue that someone deleted on the broker, until EnsureQueue creates them again. Workers receive no
	// messages of a missing priority, which count as ready.
	Missing []string
}

// QueueField is a field of a QueueConfig, or a feature of queues.
type QueueField string

// The fields whose enforcement depends on the engine.
const (
	FieldLease       QueueField = "lease"
	FieldJobTimeout  QueueField = "messageTimeout"
	FieldRetry       QueueField = "retry"
	FieldMaxInFlight QueueField = "maxInFlight"
	FieldMaxBacklog  QueueField = "maxBacklog"
	FieldDelayed     QueueField = "delayed"
	FieldDeadLetter  QueueField = "deadLetter"
	FieldPaused      QueueField = "suspend"
	FieldPriorities  QueueField = "priorities"
	FieldRateLimit   QueueField = "rateLimit"
	FieldMaxAge      QueueField = "maxAge"
	FieldReplicas    QueueField = "storage.replicas"
	FieldStorageType QueueField = "storage.type"
	FieldPlacement   QueueField = "storage.placement"
	FieldResults     QueueField = "results.retention"
	FieldResultsSize QueueField = "results.maxBytes"
)

// Enforcer is the component that enforces a field.
type Enforcer string

// The enforcers, named as in the status of a Queue.
const (
	// EnforcedByBroker: the broker enforces the field for every client.
	EnforcedByBroker Enforcer = "Broker"
	// EnforcedByWorker: only workers with the runtime of this project enforce the field.
	EnforcedByWorker Enforcer = "Workers"
	// NotEnforced: the field has no effect.
	NotEnforced Enforcer = "Unsupported"
)

// Enforcement is how a field is enforced.
type Enforcement struct {
	By Enforcer
	// Message explains a restriction to users. Optional.
	Message string
}

// Capabilities has the enforcement of each field.
type Capabilities map[QueueField]Enforcement

// DeadLetterQueue contains the messages of a queue that are not retried.
type DeadLetterQueue interface {
	// List returns at most limit dead letters with an ID greater than after, oldest first.
	List(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// Requeue returns dead letters to the queue, with their attempts reset, and returns their number. After an interruption, the next call
	// does not requeue the same dead letter twice. A dead letter that cannot be requeued stays: a KeptDeadLetterError names the first one.
	Requeue(ctx context.Context, options RequeueOptions) (int, error)
	// Move moves the oldest dead letters to another queue, and returns their number. A number of 0 means all that exist when the call starts.
	Move(ctx context.Context, to string, number int) (int, error)
	// DeleteSelected deletes the selected dead letters, and returns their number.
	DeleteSelected(ctx context.Context, selects func(*DeadLetter) bool) (int, error)
	// Purge deletes all dead letters.
	Purge(ctx context.Context) error
}

// RequeueOptions select the dead letters to requeue. The zero value selects all that exist when the call starts.
type RequeueOptions struct {
	// Number bounds the call to the oldest dead letters. 0: no bound.
	Number int
	// After excludes the dead letters up to this ID.
	After uint64
	// Until is the time from which the call processes no further dead letter. Zero: no bound.
	Until time.Time
	// Selects selects among them. Nil: all.
	Selects func(*DeadLetter) bool
	// Payload replaces their payload. Nil: the payload does not change.
	Payload *[]byte
}

// Continues reports whether the options allow another dead letter after a number of them.
func (o *RequeueOptions) Continues(number int) bool {
	return (o.Number == 0 || number < o.Number) && (o.Until.IsZero() || time.Now().Before(o.Until))
}

// DeadLetter is a message that is not retried.
type DeadLetter struct {
	// ID increases from one dead letter to the next.
	ID      uint64
	Payload []byte
	// Headers set by the producer.
	Headers  map[string][]string
	Priority string
	// Error is why the last attempt failed, in one line.
	Error    string
	Attempts int
	// MessageID is the ID of the original message, with the name of its queue on the broker.
	MessageID string
	// SentTime is when the producer sent the message, DeadLetteredTime when it became a dead letter.
	SentTime, DeadLetteredTime time.Time
}

// Subscription gives a worker the messages of one queue.
type Subscription interface {
	// Consumer returns the messages of a priority; nil if the engine has no messages of this priority.
	Consumer(ctx context.Context, priority string) (Consumer, error)
	// RateLimiter returns the rate limiter that all workers of the queue share; nil if the engine has none.
	RateLimiter(ctx context.Context) (RateLimiter, error)
	// JobRecorder returns the recorder of a queue that keeps the states of its jobs. It calls onCancel for each existing and later request
	// to cancel a job.
	JobRecorder(ctx context.Context, onCancel func(id string, request jobstate.Cancel)) (JobRecorder, error)
}

// JobRecorder stores the states of jobs that a worker has under a lease.
type JobRecorder interface {
	// Record stores the state of a job, unless a later delivery of the job was recorded.
	Record(ctx context.Context, d Delivery, entry *jobstate.Entry) error
	// EndCancel removes the request to cancel a job that has ended.
	EndCancel(ctx context.Context, id string) error
	// Stop ends calls of onCancel.
	Stop()
}

// JobStore has the states of single jobs, for programs that send jobs. The engines implement it. Its errors are SendErrors.
type JobStore interface {
	// Job returns the state of a job.
	Job(ctx context.Context, queue, id string) (jobstate.Info, error)
	// ListJobs returns at most limit jobs in one of the states, the last changed first.
	ListJobs(ctx context.Context, queue string, states []jobstate.State, limit int) (JobList, error)
	// CancelJob removes a job that no worker has received, or else requests that workers cancel it.
	CancelJob(ctx context.Context, queue, id string) (removed bool, err error)
	// RecordWaiting records that a job was sent, so that Job finds it by the ID that its producer chose.
	RecordWaiting(ctx context.Context, job *OutgoingJob, sent SendResult) error
}

// JobList is a part of the jobs of a queue.
type JobList struct {
	Jobs []jobstate.Info
	// Omitted: the queue may have more jobs in the states.
	Omitted bool
}

// MaxScannedJobs bounds the number of states that ListJobs reads, the last changed first.
const MaxScannedJobs = 100_000

// Consumer receives messages of a priority. It is not safe for concurrent use.
type Consumer interface {
	// Fetch passes at most number ready messages to receive, and returns their number.
	Fetch(ctx context.Context, number int, receive func(Delivery)) (int, error)
	// Next waits at most wait for a message, passes it to receive, and returns 1, or else 0.
	Next(ctx context.Context, wait time.Duration, receive func(Delivery)) (int, error)
	// Stop releases the resources. Leased messages can still be settled.
	Stop()
}

// Delivery is a message that a worker holds under a lease. Exactly one of Ack, Retry, Lose, Release, Bury and Abandon ends it.
type Delivery interface {
	Message() *Message
	// PendingCount is the number of messages of the priority that waited at delivery.
	PendingCount() uint64
	// ExtendLease restarts the lease. It returns an error if the broker does not confirm.
	ExtendLease(ctx context.Context) error
	// Ack removes the message from its queue: the job is done. Confirmed waits for the confirmation of the broker, a round trip.
	Ack(ctx context.Context, confirmed bool) error
	// Retry redelivers the message after the delay, after a failed attempt. The reason is in the dead letter if the broker allows no further
	// attempt.
	Retry(ctx context.Context, delay time.Duration, reason string) error
	// Lose redelivers the message after the delay, as if its lease had expired.
	Lose(ctx context.Context, delay time.Duration, reason string) error
	// Release redelivers the message after the delay, and does not count as an attempt.
	Release(ctx context.Context, delay time.Duration) error
	// Bury makes the message a dead letter, and removes it from its queue.
	Bury(ctx context.Context, reason string, attempts int) error
	// Abandon ends the delivery without a result, because the worker no longer extends the lease. Unless another worker has the message, the
	// broker redelivers it, at the latest when the lease expires.
	Abandon()
	// History returns what happened in earlier deliveries. Call it before the methods below.
	History(ctx context.Context) (History, error)
	// MarkStart records that a message that was lost before starts again, with or without other messages beside it.
	MarkStart(ctx context.Context, alone bool) error
	// CountFailure records that the attempt has failed, although the message is not settled.
	CountFailure(ctx context.Context) error
	// WasRemoved reports whether someone else removed the message from its queue.
	WasRemoved(ctx context.Context) (bool, error)
}

// Message of a producer.
type Message struct {
	// ID of the job in its queue, which the producer chose or the engine assigned. It does not change when a dead letter is requeued.
	ID string
	// Kind of the job; empty if the producer did not set it.
	Kind     string
	Payload  []byte
	Headers  map[string][]string
	Priority string
	SentTime time.Time
}

// RateLimiter enforces the rate limit of a queue across all workers.
type RateLimiter interface {
	// IsLimited reports whether the queue has a rate limit now.
	IsLimited() bool
	// Reserve waits until at least one job may be scheduled, and returns start times for at most number jobs, by the clock of this machine.
	// The times are consumed, used or not. Without a limit it returns number times in the past.
	Reserve(ctx context.Context, number int) ([]time.Time, error)
	// Stop releases the resources.
	Stop()
}

// Ender is an engine whose connection a server can end for good: no reconnect follows, and all further requests fail.
type Ender interface {
	// Ended is closed when the connection has ended for good, also by Disconnect.
	Ended() <-chan struct{}
	// EndReason returns the last error of the connection, which is why a server ended it.
	EndReason() error
}
