package broker

import (
	"context"
	"errors"
	"time"
)

// KeyStore stores small values of a queue by key, for unique jobs and batches. The engines implement it. Reads return the last write.
type KeyStore interface {
	// ReadKey returns the value and the revision of a key. A key that does not exist has no value, and a revision with which it can be
	// written.
	ReadKey(ctx context.Context, queue string, key Key) (value []byte, revision uint64, err error)
	// WriteKey stores a value, which expires after a time of at least a second, and returns its revision. It fails with ErrKeyChanged if the
	// key does not have the given revision.
	WriteKey(ctx context.Context, queue string, key Key, value []byte, expiry time.Duration, revision uint64) (uint64, error)
	// StoredHolder returns the holder of the message that made a sent job a duplicate; empty if the broker no longer stores the message, or
	// the message has another unique key.
	StoredHolder(ctx context.Context, job *OutgoingJob, duplicate SendResult) (string, error)
}

// Key identifies a value.
type Key struct {
	Kind KeyKind
	Name string // chosen by a producer
}

// KeyKind is a kind of keys.
type KeyKind string

// The kinds of keys.
const (
	UniqueKey KeyKind = "unique"
	BatchKey  KeyKind = "batch"
)

// ErrKeyChanged means that a key has another revision than expected.
var ErrKeyChanged = errors.New("the key has changed")

// HolderOf returns the holder in the headers of a message; empty if the message does not have the unique key of the job.
func (j *OutgoingJob) HolderOf(headers map[string][]string) string {
	if HeaderValue(headers, UniqueHeader) != j.UniqueKey {
		return ""
	}
	return HeaderValue(headers, HolderHeader)
}
