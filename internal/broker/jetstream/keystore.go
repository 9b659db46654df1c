package jetstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// keyName returns the name of a key in the bucket of the queue. The bucket with the states of jobs discards its oldest entries when
// it is full.
func keyName(key broker.Key) string { return string(key.Kind) + "." + keyToken(key.Name) }

// ReadKey implements broker.KeyStore.
func (e *Engine) ReadKey(ctx context.Context, queue string, key broker.Key) ([]byte, uint64, error) {
	found, err := e.readLast(ctx, bucketStreamName(queue), storedKeySubject(queue, keyName(key)))
	switch {
	case err != nil:
		return nil, 0, e.keyError(ctx, "reading", queue, key, err)
	case found == nil:
		return nil, 0, nil
	case found.isDeletedKey():
		return nil, found.Sequence, nil
	}
	return found.Data, found.Sequence, nil
}

// WriteKey implements broker.KeyStore.
func (e *Engine) WriteKey(
	ctx context.Context, queue string, key broker.Key, value []byte, expiry time.Duration, revision uint64,
) (uint64, error) {
	message := &nats.Msg{Subject: e.writableSubject(storedKeySubject(queue, keyName(key))), Data: value, Header: nats.Header{}}
	message.Header.Set(jetstream.MsgTTLHeader, expiry.Round(time.Second).String())
	written, err := e.writeLast(ctx, bucketStreamName(queue), message, revision)
	if errors.Is(err, broker.ErrKeyChanged) {
		return 0, err
	}
	return written, e.keyError(ctx, "writing", queue, key, err)
}

// StoredHolder implements broker.KeyStore. The server returns the number of the message that made the job a duplicate, unless that
// message is delayed.
func (e *Engine) StoredHolder(ctx context.Context, job *broker.OutgoingJob, duplicate broker.SendResult) (string, error) {
	var found *storedMessage
	var err error
	if duplicate.Sequence > 0 {
		found, err = e.readSequence(ctx, streamName(job.Queue), duplicate.Sequence)
	} else {
		found, err = e.readLast(ctx, delayedStreamName(job.Queue), delayedSubject(job.Queue, delayedToken(duplicate.ID)))
	}
	if err != nil || found == nil {
		return "", e.classifyError("looking up a job of the queue "+job.Queue, err)
	}
	return job.HolderOf(found.headers()), nil
}

// keyError adds the operation to an error, and explains a missing bucket.
func (e *Engine) keyError(ctx context.Context, operation, queue string, key broker.Key, err error) error {
	if err == nil {
		return nil
	}
	if isStreamMissing(err) {
		if unknown := e.requireQueue(ctx, queue); unknown != nil {
			return unknown
		}
	}
	if failure := (*jetstream.APIError)(nil); errors.As(err, &failure) && failure.ErrorCode == errorCodeTTLDisabled {
		return broker.UnsupportedField(string(key.Kind), "needs keys that expire, which the bucket of the queue %s does not allow", queue)
	}
	return e.classifyError(operation+" a key of the queue "+queue, err)
}
