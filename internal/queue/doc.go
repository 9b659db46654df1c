// Package queue decides about a Queue: what it is to be on its broker, what its status
// says of what was seen there, and what is left to do before a deleted one may go.
//
// A deleted Queue goes this way, each step again and again until it is done:
//
//	Retain   claim ▸ references ▸ dead letters ▸ release                     ▸ let go
//	Drain    close ▸ run empty  ▸ references ▸ dead letters ▸ delete         ▸ let go
//	Purge    references         ▸ close      ▸ dead letters ▸ delete         ▸ let go
//
// To claim, close, release or delete is refused for what belongs to another, and then
// there is nothing to do: so dead letters are only touched by who owns them.
//
// It refuses to take what could not be read for zero. It talks to no broker and has no
// clock: what it knows of the past it hands back as a Memory.
package queue
