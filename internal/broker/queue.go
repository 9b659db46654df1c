package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// QueueConfig is the desired state of a queue on a broker.
type QueueConfig struct {
	// Name of the queue on the broker.
	Name  string
	Owner QueueOwner
	// ReplacesOwnerUID is the UID of an owner in the same scope that no longer exists.
	ReplacesOwnerUID string
	// MustExist: a queue that does not exist is not created, and the error has ClassNotFound.
	MustExist bool `json:"-"`
	// AdoptsUnowned: the owner may take over a queue without an owner, because the credentials of the broker are from its namespace. Otherwise
	// the queue may belong to another program.
	AdoptsUnowned bool

	// Priorities from most to least urgent.
	Priorities []Priority
	// StrictPriority: workers start no message while one of a more urgent priority is ready.
	StrictPriority bool
	// Paused: workers receive no messages. They may finish those in flight.
	Paused bool
	// RateLimit bounds how often jobs start, across all workers. Nil: no limit.
	RateLimit *RateLimit
	// MaxInFlight is the maximum number of messages in flight. 0: no limit.
	MaxInFlight int
	// MaxBacklog is the number of messages from which on the queue rejects new messages. 0: no limit.
	MaxBacklog int64
	// Lease is the time after which a message is redelivered if its worker does not extend it.
	Lease time.Duration
	// JobTimeout is the time that a handler has for a job. 0: no limit.
	JobTimeout time.Duration
	Retry      RetryPolicy
	DeadLetter DeadLetterPolicy
	// MaxAge is the age at which the broker deletes a waiting message. 0: never.
	MaxAge  time.Duration
	Drift   DriftPolicy
	Storage StorageConfig
	// Results is omitted from JSON if it is zero, so that queues without it have the same hash as before the field existed.
	Results ResultsConfig `json:",omitzero"`
}

// ResultsConfig is whether and how long the state and the result of each job are kept.
type ResultsConfig struct {
	// Retention is how long a state is kept after its last change. 0: no states are kept.
	Retention time.Duration
	// MaxBytes is the size of all states from which on the oldest states are discarded.
	MaxBytes int64
}

// IsEnabled reports whether states are kept.
func (r ResultsConfig) IsEnabled() bool { return r.Retention > 0 }

// DefaultResultsBytes is the default of MaxBytes.
const DefaultResultsBytes = 1 << 30

// Priority is one class of messages.
type Priority struct {
	Name string
	// Weight is the share of workers relative to the other priorities.
	Weight int
}

// RateLimit lets Limit jobs start in each Per.
type RateLimit struct {
	Limit int
	Per   time.Duration
	// Burst is how many jobs may start at once after a time below the limit.
	Burst int
}

// Interval returns the time between two jobs at the limit.
func (r RateLimit) Interval() time.Duration { return r.Per / time.Duration(r.Limit) }

// RetryPolicy is how often a job is attempted, and the delay between attempts: InitialDelay after the first attempt, then MultiplierPercent
// of the previous delay, up to MaxDelay. JitterPercent is the maximum random change of each delay.
type RetryPolicy struct {
	MaxAttempts       int
	InitialDelay      time.Duration
	MaxDelay          time.Duration
	MultiplierPercent int
	JitterPercent     int
}

// DelayAfter returns the delay after an attempt, counted from 1. Spread, from 0 to 1, selects a point within the range of the jitter.
func (r *RetryPolicy) DelayAfter(attempt int, spread float64) time.Duration {
	growth := math.Pow(float64(r.MultiplierPercent)/100, float64(max(attempt, 1)-1))
	delay := min(float64(r.InitialDelay)*growth, float64(r.MaxDelay))
	delay *= 1 + float64(r.JitterPercent)/100*(2*spread-1)
	return time.Duration(min(max(delay, 0), float64(r.MaxDelay)))
}

// DeadLetterPolicy is whether and how long dead letters are kept.
type DeadLetterPolicy struct {
	// Enabled keeps the message with its error, attempts and origin. Otherwise it is deleted.
	Enabled bool
	// MaxEntries is the number of dead letters above which the oldest are deleted. 0: no limit.
	MaxEntries int64
	// Retention is how long a dead letter is kept. 0: until someone deletes it.
	Retention time.Duration
}

// DriftPolicy defines the reaction to changes that others make on the broker.
type DriftPolicy string

// The drift policies.
const (
	// DriftCorrect reverts them.
	DriftCorrect DriftPolicy = "Correct"
	// DriftWarn reports them and changes nothing. Changes of the configuration still apply.
	DriftWarn DriftPolicy = "Warn"
)

// DefaultQueueConfig returns the configuration of a queue with default values.
func DefaultQueueConfig(name string) QueueConfig {
	return QueueConfig{
		Name:       name,
		Priorities: []Priority{{Name: DefaultPriority, Weight: 1}},
		Lease:      30 * time.Second,
		Retry: RetryPolicy{
			MaxAttempts: 5, InitialDelay: time.Second, MaxDelay: 10 * time.Minute, MultiplierPercent: 200, JitterPercent: 20,
		},
		DeadLetter: DeadLetterPolicy{Enabled: true},
		Drift:      DriftCorrect,
	}
}

// WithoutOwner returns the configuration without the fields that EnsureQueue only compares.
func (q *QueueConfig) WithoutOwner() QueueConfig {
	config := *q
	config.Owner, config.ReplacesOwnerUID, config.AdoptsUnowned = QueueOwner{}, "", false
	return config
}

// HashConfig returns a hash that changes when the configuration, a struct, changes.
func HashConfig(config any) string {
	raw, _ := json.Marshal(config) //nolint:errchkjson // a configuration has no channels and no cycles
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// QueueOwner is the object that a queue belongs to.
type QueueOwner struct {
	// UID is unique across clusters. A released queue has an owner without a UID: another object in the same scope may take it over.
	UID string
	// Name is namespace/name.
	Name string
	// Cluster identifies the cluster of the object. Versions before v0.2 did not record it.
	Cluster string
}

// Namespace of the owner.
func (o QueueOwner) Namespace() string {
	namespace, _, _ := strings.Cut(o.Name, "/")
	return namespace
}

// SharesScope reports whether both owners are in the same namespace of the same cluster. A user who may change one of them may change the
// other.
func (o QueueOwner) SharesScope(other QueueOwner) bool {
	return o.Cluster != "" && o.Cluster == other.Cluster && o.Namespace() == other.Namespace()
}

// Released returns the owner that remains recorded after it releases its queue.
func (o QueueOwner) Released() QueueOwner { return QueueOwner{Name: o.Name, Cluster: o.Cluster} }

// OwnerConflictError means that a queue does not belong to the owner that uses it. Its message does not name the other owner, which may
// be in a namespace that readers of the message may not read.
type OwnerConflictError struct {
	Queue string
	Owner QueueOwner // of the queue; empty for no owner
}

func (e *OwnerConflictError) Error() string {
	if e.Owner == (QueueOwner{}) {
		return fmt.Sprintf("the queue %s exists on the broker, and no Queue created it", e.Queue)
	}
	return fmt.Sprintf("the queue %s on the broker belongs to another Queue", e.Queue)
}

// CheckOwner returns an error unless a queue with the found owner belongs to this owner.
func CheckOwner(queue string, found, owner QueueOwner) error {
	if found.UID != "" && found.UID == owner.UID {
		return nil
	}
	return &OwnerConflictError{Queue: queue, Owner: found}
}

// CheckOwnership returns an error unless the owner has the queue or may take it over.
func (q *QueueConfig) CheckOwnership(found QueueOwner) error {
	switch {
	case found == QueueOwner{} && q.AdoptsUnowned,
		found.SharesScope(q.Owner) && (found.UID == "" || found.UID == q.ReplacesOwnerUID):
		return nil
	}
	return CheckOwner(q.Name, found, q.Owner)
}
