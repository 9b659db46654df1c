// Package report derives a JobReport's status from the findings of package zombie.
//
// It is pure: an Aggregator collects the findings of one scan and keeps only those that the report
// will show, and Decide returns the next status, whether to write it, and the events. A status
// contains nothing that changes by itself, neither ages nor the order in which Jobs were listed,
// so that an unchanged namespace needs no writes.
package report
