package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

type queueSubscription struct {
	*Engine
	queue  string
	stream jetstream.Stream
	bucket jetstream.KeyValue
}

// Subscribe implements broker.Engine.
func (e *Engine) Subscribe(ctx context.Context, queue string) (broker.Subscription, error) {
	operation := "opening the queue " + queue
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return nil, e.classifyError(operation, err)
	}
	bucket, err := e.js.KeyValue(ctx, bucketName(queue))
	if err != nil {
		return nil, e.classifyError(operation, err)
	}
	return &queueSubscription{e, queue, stream, bucket}, nil
}

// Consumer implements broker.Subscription. A priority that is missing keeps no worker from the others: its requests fail while the operator
// has not created it yet, or after the operator has deleted it because it was removed and is empty.
func (s *queueSubscription) Consumer(ctx context.Context, priority string) (broker.Consumer, error) {
	operation := "opening the priority " + priority + " of the queue " + s.queue
	if _, err := s.stream.Consumer(ctx, priority); err != nil && !isNotFound(err) {
		return nil, s.classifyError(operation, err)
	}
	l := &pullConsumer{
		queueSubscription: s, priority: priority, inboxPrefix: s.nc.NewInbox(),
		pullSubject: s.nextMessageSubject(s.queue, priority),
	}
	var err error
	if l.inboxSubscription, err = s.nc.Subscribe(l.inboxPrefix+".*", l.handleMessage); err != nil {
		return nil, s.classifyError(operation, err)
	}
	// Pull requests bound the messages. A dropped message would be redelivered only after its lease.
	if err := l.inboxSubscription.SetPendingLimits(-1, -1); err != nil {
		return nil, s.classifyError(operation, err)
	}
	return l, nil
}

// pullConsumer receives messages of one priority. It uses the same inbox for all requests, and passes messages on in the callback
// of the subscription, so that a worker is almost as fast as the client library.
type pullConsumer struct {
	*queueSubscription
	priority          string
	inboxPrefix       string
	pullSubject       string
	inboxSubscription *nats.Subscription

	mu          sync.Mutex
	pullCount   uint64
	currentPull *pullOperation
}

type pullOperation struct {
	inbox     string
	want, got int
	receive   func(broker.Delivery)
	err       error
	done      chan struct{}
	isDone    bool
}

// finish completes the request, unless it is complete.
func (p *pullOperation) finish(err error) {
	if !p.isDone {
		p.isDone, p.err = true, err
		close(p.done)
	}
}

// Fetch implements broker.Consumer.
func (l *pullConsumer) Fetch(ctx context.Context, number int, receive func(broker.Delivery)) (int, error) {
	return l.pullMessages(ctx, &pullRequest{Batch: number, NoWait: true}, receive)
}

// Next implements broker.Consumer. It requests only one message, because a second message could arrive when the worker has no
// capacity left.
func (l *pullConsumer) Next(ctx context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	return l.pullMessages(ctx, &pullRequest{Batch: 1, Expires: wait}, receive)
}

// Stop implements broker.Consumer. No request may be in progress.
func (l *pullConsumer) Stop() { _ = l.inboxSubscription.Unsubscribe() }

type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
}

// responseGracePeriod is how long after its expiry the response to a request may arrive.
const responseGracePeriod = 2 * time.Second

// pullMessages waits until the request is complete, even if ctx ends: a message that arrives later would be redelivered only after
// its lease.
func (l *pullConsumer) pullMessages(ctx context.Context, r *pullRequest, receive func(broker.Delivery)) (int, error) {
	operation := "fetching from the queue " + l.queue + ", priority " + l.priority
	body, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.pullCount++
	p := &pullOperation{inbox: l.inboxPrefix + "." + strconv.FormatUint(l.pullCount, 10), want: r.Batch, receive: receive, done: make(chan struct{})}
	l.currentPull = p
	l.mu.Unlock()

	if err := l.nc.PublishRequest(l.pullSubject, p.inbox, body); err != nil {
		return 0, l.classifyError(operation, err)
	}
	select {
	case <-p.done:
	case <-time.After(r.Expires + responseGracePeriod):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.finish(nats.ErrTimeout)
	if p.err != nil && ctx.Err() == nil {
		return p.got, l.classifyError(operation, p.err)
	}
	return p.got, nil
}

func (l *pullConsumer) handleMessage(message *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.currentPull
	if p == nil {
		return // nobody requested the message
	}
	if status := message.Header.Get("Status"); status != "" && len(message.Data) == 0 {
		switch {
		case message.Subject != p.inbox, status == "100": // an earlier request, or a heartbeat
		case status == "404", status == "408": // no messages, or the request expired
			p.finish(nil)
		case status == noRespondersStatus:
			p.finish(nats.ErrNoResponders)
		default:
			p.finish(fmt.Errorf("the server responded %s %s", status, message.Header.Get("Description")))
		}
		return
	}
	facts, err := message.Metadata()
	if err != nil {
		return // not from the server
	}
	// A message for an earlier request counts too.
	p.receive(&leasedMessage{pullConsumer: l, message: message, metadata: facts})
	p.got++
	if p.got == p.want {
		p.finish(nil)
	}
}
