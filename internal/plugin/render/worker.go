package render

import "time"

// Worker is the JSON and YAML form of a worker of a pool.
type Worker struct {
	Name string `json:"name"`
	// State is Starting, Ready, NotReady, Draining or Terminating.
	State    string    `json:"state"`
	Revision string    `json:"revision,omitempty"`
	Node     string    `json:"node,omitempty"`
	Created  time.Time `json:"created"`
	// Since is when the worker began to drain or terminate.
	Since time.Time `json:"since,omitzero"`
}
