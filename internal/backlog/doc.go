// Package source says what is asked of a place that work comes from and that keeps no
// queue of ours: how much waits there. Each kind of place has a package of its own that
// implements Source. This package has what they share: how one is reached, and the
// classes of failure that all networks have.
//
// A reading that could not be had is an error, and never 0: workers would be stopped.
package backlog
