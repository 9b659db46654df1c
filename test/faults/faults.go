package faults

import "slices"

// Actor is a kind of participant.
type Actor int

// The actors.
const (
	// Process in a Pod: a worker, an agent, the operator.
	Process Actor = iota
	// Server to which others connect: a broker, a source, the API server.
	Server
	// Object that a server stores: a Kubernetes object, a job.
	Object
	// Clock that a process or a server reads.
	Clock
)

// Fault is what an actor may do. It completes a sentence: "a worker that " + fault.
type Fault string

// The faults.
const (
	ExitsWithZero          Fault = "exits with 0 on SIGTERM"
	ExitsWithAnotherCode   Fault = "exits with another code on SIGTERM"
	IgnoresSIGTERM         Fault = "ignores SIGTERM"
	NeverStarts            Fault = "never starts"
	StartsLate             Fault = "starts late"
	Hangs                  Fault = "hangs"
	AnswersSlowly          Fault = "answers slowly"
	AnswersWithGarbage     Fault = "answers with garbage"
	AnswersTwice           Fault = "answers twice"
	Disappears             Fault = "disappears"
	ComesBackWithOldState  Fault = "comes back with old state"
	IsReplaced             Fault = "is replaced by another with its name"
	IsFull                 Fault = "is full"
	HasExtremeValues       Fault = "has extreme values"
	HasClockThatJumpsAhead Fault = "has a clock that jumps forward"
	HasClockThatJumpsBack  Fault = "has a clock that jumps backward"
)

// faults and the actors that can have each of them.
var faults = []struct {
	fault  Fault
	actors []Actor
}{
	{ExitsWithZero, []Actor{Process}},
	{ExitsWithAnotherCode, []Actor{Process}},
	{IgnoresSIGTERM, []Actor{Process}},
	{NeverStarts, []Actor{Process, Server}},
	{StartsLate, []Actor{Process, Server}},
	{Hangs, []Actor{Process, Server}},
	{AnswersSlowly, []Actor{Server}},
	{AnswersWithGarbage, []Actor{Server}},
	{AnswersTwice, []Actor{Server}},
	{Disappears, []Actor{Process, Server, Object}},
	{ComesBackWithOldState, []Actor{Process, Server, Object}},
	{IsReplaced, []Actor{Process, Server, Object}},
	{IsFull, []Actor{Server}},
	{HasExtremeValues, []Actor{Object}},
	{HasClockThatJumpsAhead, []Actor{Clock}},
	{HasClockThatJumpsBack, []Actor{Clock}},
}

// Of returns the faults that at least one of the actors can have. A process that reads a clock has the faults of both:
// Of(Process, Clock).
func Of(actors ...Actor) []Fault {
	var found []Fault
	for _, entry := range faults {
		if slices.ContainsFunc(entry.actors, func(a Actor) bool { return slices.Contains(actors, a) }) {
			found = append(found, entry.fault)
		}
	}
	return found
}
