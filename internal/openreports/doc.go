// Package openreports says what a JobReport says in the words of OpenReports, so that who
// collects Reports of many tools sees stale Jobs among their findings.
//
// It is pure: a Report is made of a JobReport's status and nothing else. It finds nothing
// by itself, and omits nothing that the JobReport contains.
package openreports
