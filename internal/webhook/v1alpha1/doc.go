// Package v1alpha1 refuses objects that the CRD's own rules cannot: those that need the
// object as it was, or a step laid over its template.
//
// It makes no rules. They are in the pure packages, where the controllers find them
// too: a cluster without webhooks reports the same mistakes as conditions.
package v1alpha1
