package broker

import "time"

// QueueConfig is what a queue on the broker is to be.
type QueueConfig struct {
	// Name is the queue's name on the broker.
	Name string
	// Owner is the object that the queue belongs to.
	Owner QueueOwner
	// ReplacesOwnerUID is the UID of an owner that is known to be gone, whose queue this is now.
	ReplacesOwnerUID string

	// Priorities from the most urgent to the least.
	Priorities []Priority
	// StrictPriority: workers begin nothing of a priority while there is something of a more
	// urgent one.
	StrictPriority bool
	// Paused: nothing is given to workers. What they have in hand they may finish.
	Paused bool
	// RateLimit is how often a job may begin, over all workers. None: as often as can be.
	RateLimit *RateLimit
	// MaxInFlight is how many messages may be with workers at a time; 0: any number.
	MaxInFlight int
	// MaxBacklog is how many messages the queue takes before it refuses producers; 0: any
	// number.
	MaxBacklog int64
	// Lease is how long a worker that is not heard of keeps a message.
	Lease time.Duration
	// Retry says when a job that failed is tried again.
	Retry RetryPolicy
	// DeadLetter says what becomes of a job that is not tried again.
	DeadLetter DeadLetterPolicy
	// MaxAge is when a message that nobody took is dropped; 0: never.
	MaxAge time.Duration
	// Drift says what to do about changes made on the broker by hand.
	Drift DriftPolicy
}

// Priority is one class of urgency.
type Priority struct {
	Name string
	// Weight is this priority's share of the work beside the others.
	Weight int
}

// RateLimit lets Limit jobs begin in each Per.
type RateLimit struct {
	Limit int
	Per   time.Duration
	// Burst is how many may begin at once after a time with fewer than the limit.
	Burst int
}

// Interval is the time between two jobs that begin at the limit.
func (r RateLimit) Interval() time.Duration { return r.Per / time.Duration(r.Limit) }

// RetryPolicy says how often a job is tried, and how long to wait in between: InitialDelay
// after the first attempt, then each time MultiplierPercent of the delay before, at most
// MaxDelay. Each delay is changed at random by up to JitterPercent.
type RetryPolicy struct {
	MaxAttempts       int
	InitialDelay      time.Duration
	MaxDelay          time.Duration
	MultiplierPercent int
	JitterPercent     int
}

// DeadLetterPolicy says what becomes of a job that is not tried again.
type DeadLetterPolicy struct {
	// Enabled keeps it, with its payload, error, attempts and origin. Otherwise it is
	// dropped.
	Enabled bool
	// MaxEntries is how many are kept before the oldest is dropped; 0: all.
	MaxEntries int64
	// Retention is how long one is kept; 0: for ever.
	Retention time.Duration
}

// DriftPolicy says what to do about changes made on the broker by hand.
type DriftPolicy string

// What to do about drift.
const (
	// DriftCorrect undoes them.
	DriftCorrect DriftPolicy = "Correct"
	// DriftWarn tells of them and leaves them as they are. What the Queue itself asks for anew
	// is still carried out.
	DriftWarn DriftPolicy = "Warn"
)

// DefaultQueueConfig are a queue's fields where nothing else is said.
func DefaultQueueConfig(name string) QueueConfig {
	return QueueConfig{
		Name:       name,
		Priorities: []Priority{{Name: "default", Weight: 1}},
		Lease:      30 * time.Second,
		Retry: RetryPolicy{
			MaxAttempts: 5, InitialDelay: time.Second, MaxDelay: 10 * time.Minute, MultiplierPercent: 200, JitterPercent: 20,
		},
		DeadLetter: DeadLetterPolicy{Enabled: true},
		Drift:      DriftCorrect,
	}
}
