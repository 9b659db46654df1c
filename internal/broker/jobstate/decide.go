package jobstate

import (
	"encoding/json"
	"time"
)

// Info describes a job.
type Info struct {
	ID       string
	State    State
	Kind     string
	Priority string
	// Attempt is the number of the last reported attempt, MaxAttempts that of the last possible attempt.
	Attempt, MaxAttempts int
	// StartTime is when the last attempt started, NextTime when the next attempt is due at the earliest, and UpdateTime when the state was
	// stored.
	StartTime, NextTime, UpdateTime time.Time
	// Error is why the last attempt failed.
	Error    string
	Progress *Progress
	// Result of the handler, as JSON. Nil: the handler returned no result, or the queue does not keep results.
	Result json.RawMessage
	// CancelRequested: a worker will cancel the job, unless the job ends before.
	CancelRequested bool
}

// Question asks for more evidence.
type Question int

// The questions.
const (
	// Answered: the decision is final.
	Answered Question = iota
	// AskDelayed asks whether the job is not due yet.
	AskDelayed
	// AskMessage asks for the message with the number Evidence.Sequence.
	AskMessage
	// AskClock asks for the time of the broker.
	AskClock
	// AskDelivered asks whether the message was delivered.
	AskDelivered
)

// Message is a message that the broker stores.
type Message struct {
	Priority, Kind string
	StoredTime     time.Time
}

// Evidence contains the facts that were read about a job. Fields that answer a question are valid if it was asked.
type Evidence struct {
	ID string
	// Entry is nil if the store has no entry, and EntryTime is when it was stored.
	Entry     *Entry
	EntryTime time.Time
	// Sequence is the number of a message that is the ID of the job; 0: the ID is no number.
	Sequence uint64

	asked map[Question]bool
	// Delayed: the job is due at DueTime.
	Delayed bool
	DueTime time.Time
	// Message is nil if the broker does not store it.
	Message *Message
	// Now is the time of the broker. All entries that were stored since CompleteSince exist: they are not too old, and were not discarded for
	// lack of space.
	Now, CompleteSince time.Time
	// Delivered: the message was delivered at least once.
	Delivered bool
}

// Answer records that a question was answered.
func (e *Evidence) Answer(q Question) {
	if e.asked == nil {
		e.asked = map[Question]bool{}
	}
	e.asked[q] = true
}

// MessageSequence is the number of the message that AskMessage asks for.
func (e *Evidence) MessageSequence() uint64 {
	if e.Entry != nil {
		return e.Entry.Sequence
	}
	return e.Sequence
}

// Decide returns the state of a job, or the question that has to be answered first.
func Decide(e *Evidence) (Info, Question) {
	if e.Entry == nil {
		return e.withoutEntry()
	}
	info := e.Entry.Info(e.EntryTime)
	switch {
	case info.State.IsFinal():
		return info, Answered
	case info.State == Running:
		if !e.asked[AskClock] {
			return info, AskClock
		}
		if e.Now.Sub(e.EntryTime) > time.Duration(e.Entry.LeaseSeconds*float64(time.Second)) {
			info.State = Unknown // its worker is lost, or cannot report
		}
		return info, Answered
	case !e.asked[AskDelayed]:
		return info, AskDelayed
	case e.Delayed:
		info.State, info.NextTime = Waiting, e.DueTime
		return info, Answered
	case !e.asked[AskMessage]:
		return info, AskMessage
	case e.Message == nil:
		info.State = Unknown // it was removed, and no worker has reported why
	}
	return info, Answered
}

// withoutEntry decides about a job that no worker has reported.
func (e *Evidence) withoutEntry() (Info, Question) {
	info := Info{ID: e.ID, State: Unknown}
	switch {
	case !e.asked[AskDelayed]:
		return info, AskDelayed
	case e.Delayed:
		info.State, info.NextTime = Waiting, e.DueTime
		return info, Answered
	case e.Sequence == 0:
		return info, Answered // no index of the messages has the ID
	case !e.asked[AskMessage]:
		return info, AskMessage
	case e.Message == nil:
		return info, Answered
	}
	info.Priority, info.Kind = e.Message.Priority, e.Message.Kind
	switch {
	case !e.asked[AskClock]:
		return info, AskClock
	case e.Message.StoredTime.After(e.CompleteSince):
		info.State = Waiting // an entry of an attempt would still exist
	case !e.asked[AskDelivered]:
		return info, AskDelivered
	case !e.Delivered:
		info.State = Waiting
	}
	return info, Answered
}

// Info returns the claims of an entry that was stored at a time.
func (e *Entry) Info(stored time.Time) Info {
	return Info{
		ID: e.ID, State: e.State, Kind: e.Kind, Priority: e.Priority, Attempt: e.Attempt, MaxAttempts: e.MaxAttempts,
		StartTime: e.StartTime, NextTime: e.NextTime, UpdateTime: stored, Error: e.Error, Progress: e.Progress, Result: e.Result,
	}
}

// Cancel is a request to cancel the jobs with an ID.
type Cancel struct {
	// SentBefore excludes jobs that are sent later with the same ID, by the clock of the broker. Zero excludes no jobs.
	SentBefore time.Time `json:"sentBefore,omitzero"`
	// ValidFor is how long the request applies unless it is repeated. Zero: as long as the queue keeps requests.
	ValidFor time.Duration `json:"-"`
}

// Applies reports whether the request applies to a job that the broker stored at a time.
func (c Cancel) Applies(sent time.Time) bool {
	return c.SentBefore.IsZero() || !sent.After(c.SentBefore)
}
