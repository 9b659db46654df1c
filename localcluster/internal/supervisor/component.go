// Package supervisor keeps the processes of a cluster running: it starts each
// process when its dependencies are ready, restarts it when it exits, and reaps
// orphaned processes, since in a node it is pid 1.
package supervisor

import "context"

// Component is one process of a cluster.
type Component struct {
	Name    string
	Command []string
	Path    []string // directories to search for programs before the usual ones

	// After names the components that must be ready first.
	After []string

	// Ready returns when the component accepts requests. Without it, a component is
	// ready when it has started.
	Ready func(context.Context) error

	// Task means that the component is expected to exit, and is ready after it has
	// exited with code 0.
	Task bool
}
