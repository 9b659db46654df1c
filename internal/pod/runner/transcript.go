package runner

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessionarchive"
)

const (
	// archiveTimeout is how long the runner waits until its transcript is stored.
	archiveTimeout = 30 * time.Second
	// terminatedArchiveTimeout replaces archiveTimeout after SIGTERM. The container that stores the transcript ends later than the
	// runner.
	terminatedArchiveTimeout = 500 * time.Millisecond
)

// transcript sends the events of an attempt to the archive.
type transcript struct {
	writer *sessionarchive.Writer
	events *emitter
	// err is the reason for a missing writer.
	err error
}

// openTranscript returns nil if the SessionRunner has no archive. A failed archive does not fail the session.
func openTranscript(ctx context.Context, getenv func(string) string, events *emitter) *transcript {
	directory := getenv("AGENTIC_ARCHIVE")
	if directory == "" {
		return nil
	}
	writer, err := sessionarchive.Open(ctx, directory)
	if err != nil {
		events.report("The transcript is not archived: %s", err)
		return &transcript{err: err}
	}
	events.setTranscript(writer)
	return &transcript{writer: writer, events: events}
}

// storeFile sends a file, which is stored beside the transcript. Its location is known at the end of the transcript.
func (t *transcript) storeFile(name string, from io.Reader) error {
	switch {
	case t == nil:
		return errors.New("the SessionRunner has no archive")
	case t.writer == nil:
		return t.err
	}
	t.events.mutex.Lock() // events go to the same writer
	defer t.events.mutex.Unlock()
	return t.writer.WriteFile(name, from)
}

// close ends the transcript, and returns its location.
func (t *transcript) close(ctx context.Context, events *emitter) sessionarchive.Stored {
	if t.writer == nil {
		return sessionarchive.Stored{Error: t.err.Error()}
	}
	events.setTranscript(nil)
	timeout := archiveTimeout
	if ctx.Err() != nil {
		timeout = terminatedArchiveTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	stored := t.writer.Close(ctx)
	stored.Error = events.redact.string(stored.Error)
	if stored.Error != "" {
		events.report("The transcript is not archived: %s", stored.Error)
	}
	return stored
}
