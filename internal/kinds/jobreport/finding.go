package jobreport

import "time"

// Category is the result of classifying a Job.
type Category string

// The categories.
const (
	// CategoryHealthy means that no rule matches the Job.
	CategoryHealthy Category = "Healthy"
	// CategorySuspicious means that somebody should examine the Job.
	CategorySuspicious Category = "Suspicious"
	// CategoryZombie means that the Job will not make progress without intervention, or has been useless for a long time.
	CategoryZombie Category = "Zombie"
	// CategoryIgnored means that an annotation of the Job exempts it from a rule, or from all rules.
	CategoryIgnored Category = "Ignored"
)

// AllCategories returns all categories.
func AllCategories() []Category {
	return []Category{CategoryHealthy, CategorySuspicious, CategoryZombie, CategoryIgnored}
}

// Severity orders findings by importance.
type Severity string

// The severities.
const (
	SeverityLow    Severity = "Low"
	SeverityMedium Severity = "Medium"
	SeverityHigh   Severity = "High"
)

// Reason names the rule that matched, in CamelCase.
type Reason string

// The reasons. The table in rules.go defines their order and meaning.
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

// Bounds of a finding's texts, in bytes.
const (
	MaxMessageBytes = 256
	MaxCauseBytes   = 128
)

// Finding is the category of a Job and the reason for it. It contains times, never ages: the finding of an unchanged Job stays
// the same until the Job's category changes.
type Finding struct {
	Category Category
	// Reason and the fields below are empty for a healthy or ignored Job.
	Reason   Reason
	Severity Severity
	// Cause is the cause that the Job states, for programs: the reason of the condition concerned, a finalizer, another
	// controller. It may be empty.
	Cause string
	// Since is the time from which the age counts; zero if unknown.
	Since time.Time
	// Message describes the finding for humans.
	Message string
}
