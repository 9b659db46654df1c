// Package faults lists what an actor may do to a test: a worker may hang, a broker may disappear, a clock may jump. A
// Matrix combines the faults of an actor with the states of an object, and compares the outcome of each combination
// with a rule that reads like the specification. A new fault in the list appears in all matrices of its actors.
//
// The package also makes faults happen where that is the same for all tests: Script for processes, Proxy for servers,
// Jump for clocks, and Texts, Numbers and Times for objects. Package hostile has servers that attack a client; here,
// a real server fails.
package faults
