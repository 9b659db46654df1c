package asynq

import (
	"context"
	"strconv"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// storedKey returns the key of a value and its revision. asynq's own lock of unique tasks depends on their type and payload, and
// a task cannot be given another lock, so it cannot have a key that its producer chooses.
func storedKey(queue string, key broker.Key) string {
	return recordKey(queue, string(key.Kind), key.Name)
}

const (
	keyValueField    = "value"
	keyRevisionField = "revision"
)

// ReadKey implements broker.KeyStore.
func (e *Engine) ReadKey(ctx context.Context, queue string, key broker.Key) ([]byte, uint64, error) {
	fields, err := e.client.HMGet(ctx, storedKey(queue, key), keyValueField, keyRevisionField).Result()
	if err != nil {
		return nil, 0, queueError("reading a key of", queue, err)
	}
	value, isStored := fields[0].(string)
	text, _ := fields[1].(string)
	revision, err := strconv.ParseUint(text, 10, 64)
	if !isStored || err != nil {
		return nil, 0, nil //nolint:nilerr // someone else wrote it; the next write replaces it
	}
	return []byte(value), revision, nil
}

// writeKeyScript stores a key that has the expected revision. It returns the new revision, or -1 if the key has another revision.
const writeKeyScript = `
if (redis.call("HGET", KEYS[1], "revision") or "0") ~= ARGV[1] then
	return -1
end
local revision = redis.call("INCR", KEYS[2])
redis.call("HSET", KEYS[1], "revision", revision, "value", ARGV[3])
redis.call("PEXPIRE", KEYS[1], ARGV[2])
return revision`

// WriteKey implements broker.KeyStore.
func (e *Engine) WriteKey(
	ctx context.Context, queue string, key broker.Key, value []byte, expiry time.Duration, revision uint64,
) (uint64, error) {
	keys := []string{storedKey(queue, key), recordKey(queue, revisionPart)}
	written, err := e.client.Eval(ctx, writeKeyScript, keys, revision, max(expiry, time.Second).Milliseconds(), value).Int64()
	switch {
	case err != nil:
		return 0, queueError("writing a key of", queue, err)
	case written < 0:
		return 0, broker.ErrKeyChanged
	}
	return uint64(written), nil
}

// StoredHolder implements broker.KeyStore.
func (e *Engine) StoredHolder(_ context.Context, job *broker.OutgoingJob, duplicate broker.SendResult) (string, error) {
	task, err := e.inspector.GetTaskInfo(job.Queue, duplicate.ID)
	switch {
	case hasTaskEnded(task, err):
		return "", nil
	case err != nil:
		return "", queueError("looking up a job of", job.Queue, err)
	}
	return job.HolderOf(messageHeaders(task.Type, task.Headers)), nil
}
