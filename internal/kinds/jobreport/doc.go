// Package jobreport decides whether a Job is stale, and why, and derives a JobReport's status from these findings.
//
// It is pure: Classify derives a category from the metadata, spec and status of one Job and from the current time. Classify
// reads no Pods and no logs, keeps nothing between calls, and deletes nothing. An Aggregator collects the findings of one scan
// and keeps only the findings that the report will show. Decide returns the next status, whether to write it, and the events.
// FromJobReport converts a JobReport to a Report of OpenReports, for programs that collect the Reports of many tools.
//
// The rules are evaluated in a fixed order and the first match wins, so that a Job has only its most important finding.
// Reasons, thresholds, flags and documentation are derived from the table in rules.go. Missing information is unknown and
// counts in the Job's favor: a missing time never makes a Job old.
//
// A status contains nothing that changes by itself, neither ages nor the order in which Jobs were listed, so that an unchanged
// namespace needs no writes.
package jobreport
