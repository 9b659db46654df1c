// Package controller periodically scans all Jobs of the configured namespaces and records the stale
// ones in one JobReport per namespace.
//
// It only reads Jobs: it has neither the code nor the permission to change or delete one. Package
// zombie decides which Jobs are stale, package report what a report contains. A failed scan is
// recorded in the namespace's own report, which keeps its previous findings, and does not delay
// other namespaces.
package controller
