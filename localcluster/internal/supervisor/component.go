// Package supervisor keeps the processes of a cluster running: it starts each
// when what it needs is ready, starts it again when it ends, and reaps orphans,
// since in a node it is pid 1.
package supervisor

import "context"

// Component is one process of a cluster.
type Component struct {
	Name    string
	Command []string
	Path    []string // directories to search for programs before the usual ones

	// After names the components that must be ready first.
	After []string

	// Ready returns when the component serves. Without it, a component is ready
	// when it has started.
	Ready func(context.Context) error

	// Task says that the component is to end, and is ready when it has ended well.
	Task bool
}
