// Package scaling decides how many workers a WorkerPool needs.
//
// Decide is a pure function of stats, settings, memory and time. It is called every two seconds and applies its rules
// in this order. Each rule may change the number of workers; the last rule that did is the reason of the decision:
//
//	no stats ▸ demand ▸ queue limits ▸ idle ▸ bounds ▸ saturation ▸ up or down ▸ suspended
//
// The Memory of earlier decisions is small, bounded, and lost with the process. A missing Memory delays scaling down until
// rates and recommendations are measured again; it never causes a wrong decision. Only since when a pool is idle, or has no
// stats, is restored from the status.
//
// Work is messages that are due or being handled. Messages that wait for a retry count once they are due.
//
// Unknown is never treated as zero, and a pool does not scale below its busy workers unless its
// bounds require it.
package scaling
