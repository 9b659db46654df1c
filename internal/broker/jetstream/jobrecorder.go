package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

type jobRecorder struct {
	*queueSubscription
	*keyWatch
}

// JobRecorder implements broker.Subscription. It watches requests to cancel jobs, so that they take effect at once.
func (s *queueSubscription) JobRecorder(ctx context.Context, onCancel func(id string, request jobstate.Cancel)) (broker.JobRecorder, error) {
	operation := "watching for canceled jobs of the queue " + s.queue
	bucket, err := s.js.KeyValue(ctx, jobsBucketName(s.queue))
	if err != nil {
		return nil, s.classifyError(operation, err)
	}
	watch, err := s.watchKeys(ctx, operation, bucket, cancelKeyPrefix+"*", func(entry jetstream.KeyValueEntry) {
		request := jobstate.Cancel{}
		id, valid := idFromToken(strings.TrimPrefix(entry.Key(), cancelKeyPrefix))
		if valid && json.Unmarshal(entry.Value(), &request) == nil {
			onCancel(id, request)
		}
	}, jetstream.IgnoreDeletes())
	return &jobRecorder{s, watch}, err
}

// Record implements broker.JobRecorder.
func (r *jobRecorder) Record(ctx context.Context, d broker.Delivery, entry *jobstate.Entry) error {
	message, isOurs := d.(*leasedMessage)
	if !isOurs {
		return errors.New("the message is of another engine")
	}
	entry.Sequence, entry.Delivery = message.metadata.Sequence.Stream, message.metadata.NumDelivered
	last, err := r.recordEntry(ctx, r.queue, entry, message.lastEntry)
	if err == nil {
		message.lastEntry = last
	}
	return r.classifyError("recording a job of the queue "+r.queue, err)
}

// EndCancel implements broker.JobRecorder.
func (r *jobRecorder) EndCancel(ctx context.Context, id string) error {
	message := &nats.Msg{Subject: r.writableSubject(jobsSubject(r.queue, cancelKeyPrefix, id)), Header: nats.Header{keyOperationHeader: {"DEL"}}}
	_, err := r.store(ctx, message)
	return r.classifyError("recording a job of the queue "+r.queue, err)
}
