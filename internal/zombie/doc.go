// Package zombie decides whether a Job is stale, and why.
//
// It is pure: Classify derives a category from one Job's metadata, spec and status and from the
// current time. The category is Healthy, Suspicious (somebody should examine the Job) or Zombie
// (the Job will never be useful again without intervention). It reads no Pods and no logs, keeps
// nothing between calls, and deletes nothing.
//
// The rules are evaluated in a fixed order and the first match wins, so that a Job has only its
// most important finding. The table in rules.go contains everything about a rule except its code:
// reasons, thresholds, flags and documentation are derived from it.
//
// Missing information is unknown and counts in the Job's favor: a missing time never makes a Job
// old.
package zombie
