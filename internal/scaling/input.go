package scaling

import (
	"time"
)

// DecisionInterval at which Decide is made to be asked.
const DecisionInterval = 2 * time.Second

// Observation is all that a decision depends on.
type Observation struct {
	Now      time.Time
	Settings Settings
	// Replicas there are or are being made; those being drained do not count.
	Replicas int32
	// Ready ones among them, which take messages.
	Ready int32
	// PodStart is how long a Pod takes from its making until it takes messages. 0: not known.
	PodStart time.Duration
	// Stats of the queues; nil if they could not be read.
	Stats  *BacklogStats
	Memory Memory
}

// BacklogStats are what a broker says of a pool's queues together.
type BacklogStats struct {
	// Backlog of messages that wait, those due within the time a Pod takes to start
	// included.
	Backlog int64
	// InFlight messages are with a worker.
	InFlight int64
	// OldestAge of those that wait and are due.
	OldestAge time.Duration
	// Arrived and Finished count messages since ever; nil if the engine does not. A counter
	// that went back has begun anew.
	Arrived, Finished *int64
	// ServiceTime of a message, where workers say it. Otherwise it is told from Finished.
	ServiceTime time.Duration
}

// Settings is what is asked for. Zero values ask for nothing, except that Concurrency,
// Utilization, WaitP95 and Max must be positive.
type Settings struct {
	MinReplicas, MaxReplicas int32
	// Budget is what the pool may have of what several share; nil: no bound.
	Budget *int32
	// Concurrency of one worker.
	Concurrency int32
	// WaitP95 is the objective.
	WaitP95 time.Duration
	// BacklogPerReplica asks for a worker per so many waiting messages.
	BacklogPerReplica int32
	// Utilization of the workers that steady work is to make, from 0 to 1.
	Utilization float64
	// IdleAfter is how long there must be nothing to do before the last worker goes.
	IdleAfter          time.Duration
	ScaleUp, ScaleDown ScaleRule
	Fallback           *Fallback
	// PausedUntil holds the number until then.
	PausedUntil time.Time
	DryRun      bool
	// RatePerSecond is how many messages may be begun; 0: no bound.
	RatePerSecond float64
	// MaxInFlight is how many may be with workers; 0: no bound.
	MaxInFlight int64
}

// ScaleRule slows growth or shrinking.
type ScaleRule struct {
	// Window in which every decision must have asked for it.
	Window time.Duration
	// Step is the most there may be of it in one Period.
	Step   ScaleStep
	Period time.Duration
}

// ScaleStep is a number of workers, or else a percentage of those there were when growth or
// shrinking began. The zero Step is no limit.
type ScaleStep struct {
	Count   int32
	Percent int32
}

// Fallback is for when there are no figures.
type Fallback struct {
	Replicas int32
	After    time.Duration
}

// Decision is how many workers there shall be, and why.
type Decision struct {
	// Recommended is what the figures ask for; what there is, without figures.
	Recommended int32
	// Applied is how many there shall be.
	Applied int32
	// WouldApply is Applied, or what that would be if it were no dry run and not paused.
	WouldApply int32
	Reason     Reason
	// ArrivalRate in messages a second, and ServiceTime of one, as far as they are known.
	ArrivalRate float64
	ServiceTime time.Duration
	// Memory is what the next decision must be given.
	Memory Memory
}

// Reason why a number of workers is not another.
type Reason string

// The reasons.
const (
	// ReasonDemand: it is what the figures ask for.
	ReasonDemand Reason = "Demand"
	// ReasonWithinTolerance: another number would be better by too little.
	ReasonWithinTolerance Reason = "WithinTolerance"
	// ReasonRateLimit: more workers could not begin more messages.
	ReasonRateLimit Reason = "RateLimit"
	// ReasonMaxInFlight: more workers could not have more messages.
	ReasonMaxInFlight Reason = "MaxInFlight"
	// ReasonIdle: there has been nothing to do for long enough.
	ReasonIdle Reason = "Idle"
	// ReasonIdleAfter: there is nothing to do, but not for long.
	ReasonIdleAfter Reason = "NotIdleForLong"
	// ReasonMinReplicas: there are always so many.
	ReasonMinReplicas Reason = "MinReplicas"
	// ReasonMaxReplicas: there are never more.
	ReasonMaxReplicas Reason = "MaxReplicas"
	// ReasonBudget: the Policy's budget has no more for this pool.
	ReasonBudget Reason = "Budget"
	// ReasonThroughputSaturated: more workers have not finished more messages.
	ReasonThroughputSaturated Reason = "ThroughputSaturated"
	// ReasonThroughputUnproven: it has not shown yet that the last growth was of use.
	ReasonThroughputUnproven Reason = "Unproven"
	// ReasonStabilizationWindow: it was not asked for throughout the window.
	ReasonStabilizationWindow Reason = "Window"
	// ReasonMaxStep: more than maxStep in one period.
	ReasonMaxStep Reason = "MaxStep"
	// ReasonBusy: the others are busy.
	ReasonBusy Reason = "Busy"
	// ReasonStatsUnavailable: nobody can tell what waits.
	ReasonStatsUnavailable Reason = "NoFigures"
	// ReasonFallback: nobody has been able to tell for long.
	ReasonFallback Reason = "Fallback"
	// ReasonPaused: autoscaling is paused.
	ReasonPaused Reason = "Paused"
	// ReasonDryRun: it is a dry run.
	ReasonDryRun Reason = "DryRun"
)
