// Package jobreport decides whether a Job is stale, and why, and derives a JobReport's status from these findings.
//
// It is pure: Classify derives a category from one Job's metadata, spec and status and from the current time. The category is
// Healthy, Suspicious (somebody should examine the Job) or Zombie (the Job will never be useful again without intervention).
// Classify reads no Pods and no logs, keeps nothing between calls, and deletes nothing. An Aggregator collects the findings of
// one scan and keeps only those that the report will show. Decide returns the next status, whether to write it, and the
// events. FromJobReport converts a JobReport to a Report of OpenReports, for programs that collect the Reports of many tools.
//
// The rules are evaluated in a fixed order and the first match wins, so that a Job has only its most important finding. The
// table in rules.go contains everything about a rule except its code: reasons, thresholds, flags and documentation are derived
// from it. Missing information is unknown and counts in the Job's favor: a missing time never makes a Job old.
//
// A status contains nothing that changes by itself, neither ages nor the order in which Jobs were listed, so that an unchanged
// namespace needs no writes.
package jobreport
