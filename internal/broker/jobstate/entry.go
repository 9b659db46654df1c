package jobstate

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// State of a job.
type State string

// The states of a job.
const (
	// Waiting: the broker stores the job, and no worker runs it as far as workers have reported.
	Waiting State = "waiting"
	// Running: a worker that runs the job reported it within its lease.
	Running State = "running"
	// Retrying: an attempt failed, and the broker stores the job for the next attempt.
	Retrying State = "retrying"
	// Dead: the job is not attempted again. It is a dead letter, unless its queue keeps none.
	Dead State = "dead"
	// Done: the handler succeeded.
	Done State = "done"
	// Canceled: a worker removed the job, because its cancellation was requested, or because it was a duplicate.
	Canceled State = "canceled"
	// Unknown: none of these states is known.
	Unknown State = "unknown"
)

// IsFinal reports whether no attempt follows, unless somebody sends or requeues the job again.
func (s State) IsFinal() bool { return s == Dead || s == Done || s == Canceled }

// Bounds of entries.
const (
	MaxErrorBytes  = 1 << 10
	MaxResultBytes = 64 << 10
)

// Progress of a running job.
type Progress struct {
	// Fraction that is done, 0 to 1, and a text, which may be empty.
	Fraction float64 `json:"fraction"`
	Text     string  `json:"text,omitempty"`
}

// Entry is the stored state of a job. docs/reference/wire-contract.md describes its JSON.
type Entry struct {
	ID       string `json:"id"`
	State    State  `json:"state"`
	Kind     string `json:"kind,omitempty"`
	Priority string `json:"priority,omitempty"`
	// Attempt is the number of the last attempt; 0: no attempt was made.
	Attempt     int `json:"attempt"`
	MaxAttempts int `json:"maxAttempts,omitempty"`
	// StartTime is when the last attempt started, NextTime when the next attempt is due at the earliest, by the clock of the worker.
	StartTime time.Time `json:"startTime,omitzero"`
	NextTime  time.Time `json:"nextTime,omitzero"`
	// LeaseSeconds is how long a job counts as running without another report.
	LeaseSeconds float64 `json:"leaseSeconds,omitempty"`
	// Error is why the last attempt failed, in at most MaxErrorBytes.
	Error    string    `json:"error,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	// Result of the handler, in at most MaxResultBytes.
	Result json.RawMessage `json:"result,omitempty"`
	// Sequence is the number of the message in its stream, and Delivery that of its delivery; 0: it was not delivered.
	Sequence uint64 `json:"sequence,omitempty"`
	Delivery uint64 `json:"delivery,omitempty"`
}

// Replaces reports whether the entry may replace the stored entry, which may be nil. A worker that has lost its lease has an earlier
// delivery than the worker that runs the job now, and a requeued job has a later message than before.
func (e *Entry) Replaces(stored *Entry) bool {
	switch {
	case stored == nil || e.Sequence > stored.Sequence:
		return true
	case e.Sequence < stored.Sequence || e.Delivery < stored.Delivery:
		return false
	case e.Delivery > stored.Delivery:
		return true
	}
	return e.State.IsFinal() || !stored.State.IsFinal()
}

// Decode returns nil for an invalid entry: anyone with the permission may have written it.
func Decode(raw []byte) *Entry {
	e := &Entry{}
	if json.Unmarshal(raw, e) != nil {
		return nil
	}
	switch e.State {
	case Waiting, Running, Retrying, Dead, Done, Canceled:
		return e
	case Unknown:
	}
	return nil
}

// Encode returns the entry as JSON, within the bounds.
func (e *Entry) Encode() ([]byte, error) {
	bounded := *e
	bounded.Error = truncate(bounded.Error, MaxErrorBytes)
	return json.Marshal(bounded)
}

func truncate(text string, length int) string {
	if len(text) <= length {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return strings.ToValidUTF8(text[:length], "\uFFFD")
}
