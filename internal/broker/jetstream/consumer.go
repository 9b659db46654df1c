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

// queueSubscription is a queue as its workers see it.
type queueSubscription struct {
	*Engine
	queue  string
	stream jetstream.Stream
	bucket jetstream.KeyValue
}

// Subscribe is where a worker gets the queue's messages from.
func (e *Engine) Subscribe(ctx context.Context, queue string) (broker.Subscription, error) {
	doing := "looking for the queue " + queue
	stream, err := e.js.Stream(ctx, streamName(queue))
	if err != nil {
		return nil, e.classifyError(doing, err)
	}
	bucket, err := e.openBucket(ctx, queue)
	if err != nil {
		return nil, e.classifyError(doing, err)
	}
	return &queueSubscription{e, queue, stream, bucket}, nil
}

// Consumer leads to the messages of one priority.
func (s *queueSubscription) Consumer(ctx context.Context, priority string) (broker.Consumer, error) {
	doing := "looking for the priority " + priority + " of the queue " + s.queue
	if _, err := s.stream.Consumer(ctx, priority); err != nil {
		return nil, s.classifyError(doing, err)
	}
	l := &pullConsumer{
		queueSubscription: s, priority: priority, inboxPrefix: s.nc.NewInbox(),
		pullSubject: "$JS.API.CONSUMER.MSG.NEXT." + streamName(s.queue) + "." + priority,
	}
	var err error
	if l.inboxSubscription, err = s.nc.Subscribe(l.inboxPrefix+".*", l.handleMessage); err != nil {
		return nil, s.classifyError(doing, err)
	}
	// What is asked for is the bound, and what came and was dropped would be nobody's until
	// its lease is over.
	if err := l.inboxSubscription.SetPendingLimits(-1, -1); err != nil {
		return nil, s.classifyError(doing, err)
	}
	return l, nil
}

// pullConsumer is one priority of a queue.
//
// It has one inbox for as long as it lives, rather than one for each request, and hands
// messages on right where they come in: that is what makes a worker nearly as fast as the
// bare client.
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

// pullOperation is a request for messages that is under way.
type pullOperation struct {
	inbox     string
	want, got int
	receive   func(broker.Delivery)
	err       error
	done      chan struct{}
	isDone    bool
}

// finish is told once that no more comes.
func (p *pullOperation) finish(err error) {
	if !p.isDone {
		p.isDone, p.err = true, err
		close(p.done)
	}
}

// Fetch hands out at most number messages that are ready now.
func (l *pullConsumer) Fetch(ctx context.Context, number int, receive func(broker.Delivery)) (int, error) {
	return l.pullMessages(ctx, &pullRequest{Batch: number, NoWait: true}, receive)
}

// Next waits up to that long for one message. It asks for no more than one: a second
// might come when there is no use for it any more.
func (l *pullConsumer) Next(ctx context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	return l.pullMessages(ctx, &pullRequest{Batch: 1, Expires: wait}, receive)
}

// Stop ends it. No request may be under way.
func (l *pullConsumer) Stop() { _ = l.inboxSubscription.Unsubscribe() }

// pullRequest is a request for messages as the server reads it.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
}

// responseGracePeriod is how long after its time the server's last word on a request is waited for.
const responseGracePeriod = 2 * time.Second

// pullMessages asks for messages, and waits for the end of what the request brings, even if ctx
// is over: a message that came when nobody listened any more would be nobody's until its
// lease is over.
func (l *pullConsumer) pullMessages(ctx context.Context, r *pullRequest, receive func(broker.Delivery)) (int, error) {
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
		return 0, l.fetchError(err)
	}
	timer := time.NewTimer(r.Expires + responseGracePeriod)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.isDone {
		p.finish(nats.ErrTimeout)
	}
	if p.err != nil && ctx.Err() == nil {
		return p.got, l.fetchError(p.err)
	}
	return p.got, nil
}

// handleMessage takes what comes in: messages, and the server's words about requests.
func (l *pullConsumer) handleMessage(message *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.currentPull
	if status := message.Header.Get("Status"); status != "" && len(message.Data) == 0 {
		if message.Subject == p.inbox {
			l.handleStatus(p, status, message.Header.Get("Description"))
		}
		return
	}
	facts, err := message.Metadata()
	if err != nil {
		return // not from the server
	}
	// It may be that an earlier request brought it, late: that is not to be told.
	p.receive(&leasedMessage{l, message, facts})
	p.got++
	if p.got == p.want {
		p.finish(nil)
	}
}

// handleStatus is told what the server says about a request.
func (*pullConsumer) handleStatus(p *pullOperation, status, description string) {
	switch status {
	case "100": // it is still there
	case "404", "408": // there is no message, or the time is over
		p.finish(nil)
	case "503":
		p.finish(nats.ErrNoResponders)
	default:
		p.finish(fmt.Errorf("the server says %s %s", status, description))
	}
}

func (l *pullConsumer) fetchError(err error) error {
	return l.classifyError("fetching from the queue "+l.queue+", priority "+l.priority, err)
}
