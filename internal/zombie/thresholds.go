package zombie

import (
	"errors"
	"fmt"
	"time"
)

// Threshold says how old a rule's trouble must be. 0 is never.
type Threshold struct {
	// Suspicious is from when on the Job is Suspicious.
	Suspicious time.Duration
	// Zombie is from when on it is a Zombie.
	Zombie time.Duration
}

// Thresholds are those of all rules that go by age. The defaults are in Defaults.
type Thresholds struct {
	// StuckTerminating counts from the deletion.
	StuckTerminating Threshold
	// TTLNotEnforced counts from when the Job's time to live was over.
	TTLNotEnforced Threshold
	// FailedLongAgo counts from the failure. It has no Suspicious: a failed Job is
	// suspicious at once, by the reason of its failure.
	FailedLongAgo Threshold
	// FinishedNotCleaned counts from the completion. It has no Zombie.
	FinishedNotCleaned Threshold
	// InterimStuck is that of FailureTargetStuck and SuccessCriteriaStuck, and counts
	// from that condition.
	InterimStuck Threshold
	// ExternallyManaged counts from the creation. It has no Zombie: what another
	// controller means by a Job is not known here.
	ExternallyManaged Threshold
	// SuspendedTooLong counts from the suspension.
	SuspendedTooLong Threshold
	// NeverStarted counts from the creation, or from the resumption.
	NeverStarted Threshold
	// PausedByParallelism counts from the last change of the Job. It has no Zombie.
	PausedByParallelism Threshold
	// DeadlineNotEnforced counts from when the Job's deadline was over.
	DeadlineNotEnforced Threshold
	// NoActivePods counts from the last change of the Job's status.
	NoActivePods Threshold
	// NoReadyPods counts from the Job's start.
	NoReadyPods Threshold
	// RunningTooLong counts from the Job's start.
	RunningTooLong Threshold
}

const oneDay = 24 * time.Hour

// DefaultThresholds are the thresholds that hold where nobody says otherwise.
func DefaultThresholds() Thresholds {
	return Thresholds{
		StuckTerminating:    Threshold{Suspicious: 15 * time.Minute, Zombie: time.Hour},
		TTLNotEnforced:      Threshold{Suspicious: time.Hour, Zombie: oneDay},
		FailedLongAgo:       Threshold{Zombie: 7 * oneDay},
		FinishedNotCleaned:  Threshold{Suspicious: 7 * oneDay},
		InterimStuck:        Threshold{Suspicious: 30 * time.Minute, Zombie: 6 * time.Hour},
		ExternallyManaged:   Threshold{Suspicious: oneDay},
		SuspendedTooLong:    Threshold{Suspicious: 7 * oneDay, Zombie: 30 * oneDay},
		NeverStarted:        Threshold{Suspicious: 10 * time.Minute, Zombie: oneDay},
		PausedByParallelism: Threshold{Suspicious: 7 * oneDay},
		DeadlineNotEnforced: Threshold{Suspicious: 10 * time.Minute, Zombie: time.Hour},
		NoActivePods:        Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
		NoReadyPods:         Threshold{Suspicious: 30 * time.Minute, Zombie: oneDay},
		RunningTooLong:      Threshold{Suspicious: oneDay, Zombie: 7 * oneDay},
	}
}

// ThresholdSetting is one duration among Thresholds, for those that make flags of them.
type ThresholdSetting struct {
	// Name in words joined by dashes: never-started-zombie-after.
	Name string
	// Usage is what it means.
	Usage string
	// Value is where it is kept.
	Value *time.Duration
}

// Settings are the durations that can be set, each once.
func (t *Thresholds) Settings() []ThresholdSetting {
	var settings []ThresholdSetting
	suspicious := func(name, meaning string, value *time.Duration) {
		settings = append(settings, ThresholdSetting{
			Name: name + "-suspicious-after", Value: value, Usage: "A Job is Suspicious when " + meaning + " for this long. 0: never.",
		})
	}
	zombie := func(name, meaning string, value *time.Duration) {
		settings = append(settings, ThresholdSetting{
			Name: name + "-zombie-after", Value: value, Usage: "A Job is a Zombie when " + meaning + " for this long. 0: never.",
		})
	}
	both := func(name, meaning string, threshold *Threshold) {
		suspicious(name, meaning, &threshold.Suspicious)
		zombie(name, meaning, &threshold.Zombie)
	}
	both("stuck-terminating", "it has been deleted, and not gone,", &t.StuckTerminating)
	both("ttl-not-enforced", "its time to live after the end has been over", &t.TTLNotEnforced)
	zombie("failed-long-ago", "it has been failed, without a controller,", &t.FailedLongAgo.Zombie)
	suspicious("finished-not-cleaned", "it has been complete, without a time to live or a controller,", &t.FinishedNotCleaned.Suspicious)
	both("interim-stuck", "it has been about to fail or to complete", &t.InterimStuck)
	suspicious("externally-managed", "another controller has had it, unfinished,", &t.ExternallyManaged.Suspicious)
	both("suspended-too-long", "it has been suspended", &t.SuspendedTooLong)
	both("never-started", "it has been waiting to be started", &t.NeverStarted)
	suspicious("paused-by-parallelism", "its parallelism has been 0", &t.PausedByParallelism.Suspicious)
	both("deadline-not-enforced", "its deadline has been over", &t.DeadlineNotEnforced)
	both("no-active-pods", "it has had no Pod", &t.NoActivePods)
	both("no-ready-pods", "it has had Pods none of which got ready", &t.NoReadyPods)
	both("running-too-long", "it has been running, without a deadline,", &t.RunningTooLong)
	return settings
}

// Validate returns an error that names what cannot be meant.
func (t Thresholds) Validate() error {
	var errs []error
	for _, setting := range t.Settings() {
		if *setting.Value < 0 {
			errs = append(errs, fmt.Errorf("%s is %s, must not be negative", setting.Name, *setting.Value))
		}
	}
	return errors.Join(errs...)
}
