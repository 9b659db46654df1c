package zombie

import "time"

// Category is what a Job is.
type Category string

// The categories.
const (
	// Healthy: no rule has anything to say of the Job.
	Healthy Category = "Healthy"
	// Suspicious: somebody should look at it.
	Suspicious Category = "Suspicious"
	// Zombie: it will not come to life again by itself, or is long since of no use.
	Zombie Category = "Zombie"
)

// Severity orders findings by how much they matter.
type Severity string

// The severities.
const (
	Low    Severity = "Low"
	Medium Severity = "Medium"
	High   Severity = "High"
)

// Reason is the rule that matched, in CamelCase.
type Reason string

// The reasons, in the order in which they win.
const (
	Unknown                  Reason = "Unknown"
	StuckTerminating         Reason = "StuckTerminating"
	TTLNotEnforced           Reason = "TTLNotEnforced"
	FailedLongAgo            Reason = "FailedLongAgo"
	BackoffLimitExceeded     Reason = "BackoffLimitExceeded"
	DeadlineExceeded         Reason = "DeadlineExceeded"
	PodFailurePolicy         Reason = "PodFailurePolicy"
	MaxFailedIndexesExceeded Reason = "MaxFailedIndexesExceeded"
	FailedIndexes            Reason = "FailedIndexes"
	FailedOther              Reason = "FailedOther"
	FinishedNotCleaned       Reason = "FinishedNotCleaned"
	FailureTargetStuck       Reason = "FailureTargetStuck"
	SuccessCriteriaStuck     Reason = "SuccessCriteriaStuck"
	ExternallyManaged        Reason = "ExternallyManaged"
	SuspendedTooLong         Reason = "SuspendedTooLong"
	NeverStarted             Reason = "NeverStarted"
	PausedByParallelism      Reason = "PausedByParallelism"
	DeadlineNotEnforced      Reason = "DeadlineNotEnforced"
	NoActivePods             Reason = "NoActivePods"
	NoReadyPods              Reason = "NoReadyPods"
	RunningTooLong           Reason = "RunningTooLong"
	Orphaned                 Reason = "Orphaned"
)

// Reasons are all reasons there are, in the order in which they win.
func Reasons() []Reason {
	return []Reason{
		Unknown, StuckTerminating, TTLNotEnforced, FailedLongAgo,
		BackoffLimitExceeded, DeadlineExceeded, PodFailurePolicy, MaxFailedIndexesExceeded, FailedIndexes, FailedOther,
		FinishedNotCleaned, FailureTargetStuck, SuccessCriteriaStuck, ExternallyManaged, SuspendedTooLong, NeverStarted,
		PausedByParallelism, DeadlineNotEnforced, NoActivePods, NoReadyPods, RunningTooLong, Orphaned,
	}
}

// Bounds of a finding's texts, in bytes.
const (
	MaxMessage = 256
	MaxCause   = 128
)

// Finding is what a Job is, and why. It holds times, never ages: of an unchanged Job it
// stays the same until the Job's category changes.
type Finding struct {
	Category Category
	// Reason is empty for a healthy Job, like all that follows.
	Reason   Reason
	Severity Severity
	// Cause is what the Job itself names as the cause, for programs: the reason of the
	// condition that was looked at, a finalizer, another controller. It may be empty.
	Cause string
	// Since is from when the rule counts; zero where the Job does not say.
	Since time.Time
	// Message is for people.
	Message string
}
