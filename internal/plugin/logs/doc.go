// Package logs tells the logs of a SequentialJob's steps, one step after another, and of an
// AgenticSession's runner, one attempt after another.
//
// Which logs there are is decided by functions of the objects alone (sources.go,
// session.go); what a
// Pod no longer has is said, never left out in silence.
package logs
