package zombie

import "time"

// Category is what a Job is.
type Category string

// The categories.
const (
	// CategoryHealthy: no rule has anything to say of the Job.
	CategoryHealthy Category = "Healthy"
	// CategorySuspicious: somebody should look at it.
	CategorySuspicious Category = "Suspicious"
	// CategoryZombie: it will not come to life again by itself, or is long since of no use.
	CategoryZombie Category = "Zombie"
)

// Severity orders findings by how much they matter.
type Severity string

// The severities.
const (
	SeverityLow    Severity = "Low"
	SeverityMedium Severity = "Medium"
	SeverityHigh   Severity = "High"
)

// Reason is the rule that matched, in CamelCase.
type Reason string

// The reasons, in the order in which they win.
const (
	ReasonUnknown                  Reason = "Unknown"
	ReasonStuckTerminating         Reason = "StuckTerminating"
	ReasonTTLNotEnforced           Reason = "TTLNotEnforced"
	ReasonFailedLongAgo            Reason = "FailedLongAgo"
	ReasonBackoffLimitExceeded     Reason = "BackoffLimitExceeded"
	ReasonDeadlineExceeded         Reason = "DeadlineExceeded"
	ReasonPodFailurePolicy         Reason = "PodFailurePolicy"
	ReasonMaxFailedIndexesExceeded Reason = "MaxFailedIndexesExceeded"
	ReasonFailedIndexes            Reason = "FailedIndexes"
	ReasonFailedOther              Reason = "FailedOther"
	ReasonFinishedNotCleaned       Reason = "FinishedNotCleaned"
	ReasonFailureTargetStuck       Reason = "FailureTargetStuck"
	ReasonSuccessCriteriaStuck     Reason = "SuccessCriteriaStuck"
	ReasonExternallyManaged        Reason = "ExternallyManaged"
	ReasonSuspendedTooLong         Reason = "SuspendedTooLong"
	ReasonNeverStarted             Reason = "NeverStarted"
	ReasonPausedByParallelism      Reason = "PausedByParallelism"
	ReasonDeadlineNotEnforced      Reason = "DeadlineNotEnforced"
	ReasonNoActivePods             Reason = "NoActivePods"
	ReasonNoReadyPods              Reason = "NoReadyPods"
	ReasonRunningTooLong           Reason = "RunningTooLong"
	ReasonOrphaned                 Reason = "Orphaned"
)

// AllReasons are all reasons there are, in the order in which they win.
func AllReasons() []Reason {
	return []Reason{
		ReasonUnknown, ReasonStuckTerminating, ReasonTTLNotEnforced, ReasonFailedLongAgo,
		ReasonBackoffLimitExceeded, ReasonDeadlineExceeded, ReasonPodFailurePolicy, ReasonMaxFailedIndexesExceeded, ReasonFailedIndexes, ReasonFailedOther,
		ReasonFinishedNotCleaned, ReasonFailureTargetStuck, ReasonSuccessCriteriaStuck, ReasonExternallyManaged, ReasonSuspendedTooLong, ReasonNeverStarted,
		ReasonPausedByParallelism, ReasonDeadlineNotEnforced, ReasonNoActivePods, ReasonNoReadyPods, ReasonRunningTooLong, ReasonOrphaned,
	}
}

// Bounds of a finding's texts, in bytes.
const (
	MaxMessageBytes = 256
	MaxCauseBytes   = 128
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
