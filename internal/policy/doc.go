// Package policy tells what holds for a Queue or a WorkerPool, and why.
//
// What an object says itself goes before the defaults of Policies, and those before the
// built-in ones; of several Policies the one with the greatest precedence goes first, then
// the first by name. Of limits the strictest holds, whoever sets it. Each value comes with
// its source.
//
// It is pure: it is given the objects, and refuses to fetch any.
package policy
