// Package scaling decides how many workers a WorkerPool has.
//
// Decide is a pure function of figures, policy, memory and now. It is asked every two
// seconds, and goes through its rules in one order; each may change the number, and the
// last that did is the reason:
//
//	paused ▸ no figures ▸ demand ▸ caps ▸ idle ▸ bounds ▸ saturation ▸ up or down ▸ dry run
//
// What it must know of earlier decisions it hands back as a Memory, which is small, of
// bounded size, and fit to be stored: after a crash the next process goes on with the last
// that was. An old Memory, or none, makes decisions slower to come down and never wrong.
//
// It refuses to take what is not known for zero, and to shrink below what is busy unless
// its bounds ask for it.
package scaling
