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

// jobRecorder implements broker.JobRecorder.
type jobRecorder struct {
	*queueSubscription
	watcher jetstream.KeyWatcher
	stop    context.CancelFunc
	done    chan struct{}
}

// JobRecorder implements broker.Subscription. Requests to cancel jobs are watched, so that they take effect at once.
func (s *queueSubscription) JobRecorder(ctx context.Context, onCancel func(id string, request jobstate.Cancel)) (broker.JobRecorder, error) {
	operation := "watching for canceled jobs of the queue " + s.queue
	bucket, err := s.js.KeyValue(ctx, jobsBucketName(s.queue))
	if err != nil {
		return nil, s.classifyError(operation, err)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watcher, err := bucket.Watch(watching, cancelKeyPrefix+"*", jetstream.IgnoreDeletes())
	if err != nil {
		stop()
		return nil, s.classifyError(operation, err)
	}
	r := &jobRecorder{queueSubscription: s, watcher: watcher, stop: stop, done: make(chan struct{})}
	known := make(chan struct{})
	go r.watchCancels(known, onCancel)
	select {
	case <-known:
		return r, nil
	case <-ctx.Done():
		r.Stop()
		return nil, s.classifyError(operation, ctx.Err())
	}
}

// watchCancels closes known after the requests that exist already.
func (r *jobRecorder) watchCancels(known chan<- struct{}, onCancel func(id string, request jobstate.Cancel)) {
	defer close(r.done)
	for entry := range r.watcher.Updates() {
		if entry == nil {
			close(known)
			continue
		}
		request := jobstate.Cancel{}
		id, valid := idFromToken(strings.TrimPrefix(entry.Key(), cancelKeyPrefix))
		if valid && json.Unmarshal(entry.Value(), &request) == nil {
			onCancel(id, request)
		}
	}
}

// Stop implements broker.JobRecorder.
func (r *jobRecorder) Stop() {
	_ = r.watcher.Stop()
	r.stop()
	<-r.done
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
	message := &nats.Msg{Subject: r.writableSubject(jobsSubject(r.queue, cancelKey(id))), Header: nats.Header{keyOperationHeader: {"DEL"}}}
	a, err := r.store(ctx, message)
	if err == nil && a.Error != nil {
		err = a.Error
	}
	return r.classifyError("recording a job of the queue "+r.queue, err)
}
