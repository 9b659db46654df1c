package render

import "time"

// DeadLetter is the JSON and YAML form of a dead letter.
type DeadLetter struct {
	ID       uint64              `json:"id"`
	Priority string              `json:"priority,omitempty"`
	Error    string              `json:"error"`
	Attempts int                 `json:"attempts"`
	Origin   string              `json:"origin,omitempty"`
	Sent     time.Time           `json:"sent,omitzero"`
	Died     time.Time           `json:"died"`
	Headers  map[string][]string `json:"headers,omitempty"`
	Payload  []byte              `json:"payload"`
}

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
