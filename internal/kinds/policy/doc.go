// Package policy computes the settings in use for a Queue or a WorkerPool, and their sources.
//
// The spec of an object takes precedence over the defaults of Policies, and the Policies over the built-in defaults. Of several
// Policies the Policy with the highest precedence applies first, then the first by name. Of several limits the strictest
// applies.
//
// It is pure: the caller passes all objects.
package policy
