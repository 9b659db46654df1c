package scaling

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// DecisionInterval is the time between two calls of Decide, for which the thresholds are tuned.
const DecisionInterval = 2 * time.Second

// Observation is the input of a decision.
type Observation struct {
	Now      time.Time
	Settings Settings
	// Replicas that exist or are being created, without draining replicas.
	Replicas int32
	// Ready replicas, which take messages.
	Ready int32
	// PodStart is the time from the creation of a Pod until it is ready; 0 to use the last known time.
	PodStart time.Duration
	// Stats of the queues; nil if they could not be read.
	Stats  *BacklogStats
	Memory Memory
}

// BacklogStats are the stats of all queues of a pool together.
type BacklogStats struct {
	// Backlog is the number of waiting messages that are due. If RetriesDue is true, retries may be due that the broker
	// does not count.
	Backlog    int64
	RetriesDue bool
	// Running is the number of running handlers.
	Running int64
	// Unaccounted is the number of delivered messages that no worker reports. They need a worker, because no
	// notification announces when they are due.
	Unaccounted int64
	// OldestAge is the age of the oldest message of the backlog.
	OldestAge time.Duration
	// Arrived and Finished are cumulative counts of messages; nil if the engine does not count
	// them. A decrease means that the counter was reset.
	Arrived, Finished *int64
	// ServiceTime is the time of one attempt, if workers report it. If it is 0, the service time of all attempts at a
	// message together is derived from Finished.
	ServiceTime time.Duration
	// ReturnRate is the number of messages per second that workers return to the queue for another attempt; 0 without
	// ServiceTime.
	ReturnRate float64
	// BacklogPerReplica is the target of a source in messages per worker; 0 if it has none.
	BacklogPerReplica float64
}

// targetUtilization of workers under steady load leaves room for messages that arrive in bursts.
const targetUtilization = 0.8

// Settings are the autoscaling settings of a pool and the limits that apply to it. Zero values
// disable a setting, but Concurrency, WaitP95 and MaxReplicas must be positive.
type Settings struct {
	MinReplicas, MaxReplicas int32
	// Budget is the upper bound of a shared replica budget, or nil.
	Budget *int32
	// Concurrency is the number of messages that a worker handles at the same time.
	Concurrency int32
	// WaitP95 is the objective for the 95th percentile of waiting times.
	WaitP95 time.Duration
	// BacklogPerReplica is the number of messages per worker; 0 to scale by waiting time only.
	BacklogPerReplica int32
	// DefaultBacklogPerReplica replaces BacklogPerReplica if it is 0 and neither a target of the source nor the service
	// time is known; 0 to assume defaultServiceTime instead.
	DefaultBacklogPerReplica int32
	// IdleAfter is the time without messages after which the pool scales to zero.
	IdleAfter          time.Duration
	ScaleUp, ScaleDown ScaleRule
	Fallback           *Fallback
	// Suspended is true if decisions are computed, and the number of workers does not change.
	Suspended bool
	// RatePerSecond is the rate limit of the queues; 0 means unlimited.
	RatePerSecond float64
	// MaxInFlight is the limit of messages in flight; 0 means unlimited.
	MaxInFlight int64
}

// ScaleRule slows scaling in one direction.
type ScaleRule struct {
	// Window is the time during which all recommendations must agree with a change.
	Window time.Duration
	// Step is the largest change within one Period: a number of workers, or a percentage of the number at the start of
	// the ramp; nil means unlimited.
	Step   *intstr.IntOrString
	Period time.Duration
}

// Fallback is the number of workers while stats are unavailable.
type Fallback struct {
	Replicas int32
	// After is the time without stats after which the fallback applies.
	After time.Duration
}

// Decision is the desired number of workers and the reason for it.
type Decision struct {
	// Recommended is the number computed from metrics, before limits; without stats, the current number.
	Recommended int32
	// Target that Recommended follows; zero without stats.
	Target Target
	// Applied is the number after limits.
	Applied int32
	// WouldApply is the number that Applied would be if autoscaling were not suspended.
	WouldApply int32
	Reason     Reason
	// Formula has the values from which Recommended is computed; empty without stats.
	Formula string
	// Memory for the next decision.
	Memory Memory
}

// Target of a recommendation.
type Target struct {
	// BacklogPerReplica is the number of messages per worker; 0 to follow the service time.
	BacklogPerReplica float64
	Source            TargetSource
}

// TargetSource is where a Target comes from.
type TargetSource string

// The sources of a Target, by precedence.
const (
	TargetBacklogPerReplica  TargetSource = "BacklogPerReplica"
	TargetFromSource         TargetSource = "Source"
	TargetServiceTime        TargetSource = "ServiceTime"
	TargetDefault            TargetSource = "Default"
	TargetAssumedServiceTime TargetSource = "AssumedServiceTime"
)

// Reason of a decision.
type Reason string

// The reasons. Summarize explains each of them.
const (
	ReasonDemand              Reason = "Demand"
	ReasonWithinTolerance     Reason = "WithinTolerance"
	ReasonRateLimit           Reason = "RateLimit"
	ReasonMaxInFlight         Reason = "MaxInFlight"
	ReasonIdle                Reason = "Idle"
	ReasonIdleAfter           Reason = "IdleAfter"
	ReasonMinReplicas         Reason = "MinReplicas"
	ReasonMaxReplicas         Reason = "MaxReplicas"
	ReasonBudget              Reason = "Budget"
	ReasonThroughputSaturated Reason = "ThroughputSaturated"
	ReasonThroughputUnproven  Reason = "ThroughputUnproven"
	ReasonStabilizationWindow Reason = "StabilizationWindow"
	ReasonMaxStep             Reason = "MaxStep"
	ReasonBusy                Reason = "Busy"
	ReasonStatsUnavailable    Reason = "MetricsUnavailable"
	ReasonFallback            Reason = "Fallback"
	ReasonSuspended           Reason = "Suspended"
)
