// Package validation validates objects in webhooks where the CRD's rules cannot: rules that need
// the previous version of the object, or a step merged into its template.
//
// It defines no rules. They are in the pure packages that the controllers use too: a cluster
// without webhooks reports the same errors in conditions.
package validation
