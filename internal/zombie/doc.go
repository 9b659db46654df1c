// Package zombie tells whether a Job is stale, and why.
//
// It is pure: from one Job's metadata, spec and status, and the time, Classify tells
// what the Job is: Healthy, Suspicious (somebody should look) or Zombie (nobody will
// ever need it as it is). It looks at no Pods and no logs, keeps nothing between calls,
// and deletes nothing.
//
// The rules are asked in a fixed order and the first that matches wins, so that a Job is
// told its most important trouble only:
//
//	Unknown               what it says of itself cannot be
//	StuckTerminating      deleted, and still there
//	TTLNotEnforced        finished, and should be gone by its own time to live
//	FailedLongAgo         failed, and nobody cleaned up
//	BackoffLimitExceeded  failed; so DeadlineExceeded, PodFailurePolicy, FailedOther, …
//	FinishedNotCleaned    succeeded, and nobody cleaned up
//	FailureTargetStuck    about to fail, and does not; so SuccessCriteriaStuck
//	ExternallyManaged     unfinished in the hands of another controller
//	SuspendedTooLong      suspended
//	NeverStarted          the Job controller has not begun it
//	PausedByParallelism   parallelism 0
//	DeadlineNotEnforced   should have failed by its own deadline
//	NoActivePods          begun, and has no Pod
//	NoReadyPods           has Pods, none of which ever got ready
//	RunningTooLong        runs without a deadline
//	Orphaned              its CronJob has let go of it
//
// What a Job does not say is unknown, and speaks in the Job's favour: a time that is
// missing makes nothing old.
package zombie
