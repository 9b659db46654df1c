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

// workQueue is a queue as its workers see it.
type workQueue struct {
	*Engine
	queue  string
	stream jetstream.Stream
	bucket jetstream.KeyValue
}

// Subscribe is where a worker gets the queue's messages from.
func (e *Engine) Subscribe(ctx context.Context, queue string) (broker.Subscription, error) {
	doing := "looking for the queue " + queue
	stream, err := e.js.Stream(ctx, streamOf(queue))
	if err != nil {
		return nil, e.classify(doing, err)
	}
	bucket, err := e.bucket(ctx, queue)
	if err != nil {
		return nil, e.classify(doing, err)
	}
	return &workQueue{e, queue, stream, bucket}, nil
}

// Consumer leads to the messages of one priority.
func (s *workQueue) Consumer(ctx context.Context, priority string) (broker.Consumer, error) {
	doing := "looking for the priority " + priority + " of the queue " + s.queue
	if _, err := s.stream.Consumer(ctx, priority); err != nil {
		return nil, s.classify(doing, err)
	}
	l := &lane{
		workQueue: s, priority: priority, inbox: s.nc.NewInbox(),
		request: "$JS.API.CONSUMER.MSG.NEXT." + streamOf(s.queue) + "." + priority,
	}
	var err error
	if l.subscription, err = s.nc.Subscribe(l.inbox+".*", l.take); err != nil {
		return nil, s.classify(doing, err)
	}
	// What is asked for is the bound, and what came and was dropped would be nobody's until
	// its lease is over.
	if err := l.subscription.SetPendingLimits(-1, -1); err != nil {
		return nil, s.classify(doing, err)
	}
	return l, nil
}

// lane is one priority of a queue.
//
// It has one inbox for as long as it lives, rather than one for each request, and hands
// messages on right where they come in: that is what makes a worker nearly as fast as the
// bare client.
type lane struct {
	*workQueue
	priority     string
	inbox        string
	request      string
	subscription *nats.Subscription

	mu      sync.Mutex
	number  uint64
	current *pull
}

// pull is a request for messages that is under way.
type pull struct {
	inbox     string
	want, got int
	receive   func(broker.Delivery)
	err       error
	done      chan struct{}
	isDone    bool
}

// end is told once that no more comes.
func (p *pull) end(err error) {
	if !p.isDone {
		p.isDone, p.err = true, err
		close(p.done)
	}
}

// Fetch hands out at most number messages that are ready now.
func (l *lane) Fetch(ctx context.Context, number int, receive func(broker.Delivery)) (int, error) {
	return l.pull(ctx, &pullRequest{Batch: number, NoWait: true}, receive)
}

// Next waits up to that long for one message. It asks for no more than one: a second
// might come when there is no use for it any more.
func (l *lane) Next(ctx context.Context, wait time.Duration, receive func(broker.Delivery)) (int, error) {
	return l.pull(ctx, &pullRequest{Batch: 1, Expires: wait}, receive)
}

// Stop ends it. No request may be under way.
func (l *lane) Stop() { _ = l.subscription.Unsubscribe() }

// pullRequest is a request for messages as the server reads it.
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires,omitempty"`
	NoWait  bool          `json:"no_wait,omitempty"`
}

// overdue is how long after its time the server's last word on a request is waited for.
const overdue = 2 * time.Second

// pull asks for messages, and waits for the end of what the request brings, even if ctx
// is over: a message that came when nobody listened any more would be nobody's until its
// lease is over.
func (l *lane) pull(ctx context.Context, r *pullRequest, receive func(broker.Delivery)) (int, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.number++
	p := &pull{inbox: l.inbox + "." + strconv.FormatUint(l.number, 10), want: r.Batch, receive: receive, done: make(chan struct{})}
	l.current = p
	l.mu.Unlock()

	if err := l.nc.PublishRequest(l.request, p.inbox, body); err != nil {
		return 0, l.failed(err)
	}
	timer := time.NewTimer(r.Expires + overdue)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.isDone {
		p.end(nats.ErrTimeout)
	}
	if p.err != nil && ctx.Err() == nil {
		return p.got, l.failed(p.err)
	}
	return p.got, nil
}

// take takes what comes in: messages, and the server's words about requests.
func (l *lane) take(message *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.current
	if status := message.Header.Get("Status"); status != "" && len(message.Data) == 0 {
		if message.Subject == p.inbox {
			l.told(p, status, message.Header.Get("Description"))
		}
		return
	}
	facts, err := message.Metadata()
	if err != nil {
		return // not from the server
	}
	// It may be that an earlier request brought it, late: that is not to be told.
	p.receive(&delivery{l, message, facts})
	p.got++
	if p.got == p.want {
		p.end(nil)
	}
}

// told is told what the server says about a request.
func (*lane) told(p *pull, status, description string) {
	switch status {
	case "100": // it is still there
	case "404", "408": // there is no message, or the time is over
		p.end(nil)
	case "503":
		p.end(nats.ErrNoResponders)
	default:
		p.end(fmt.Errorf("the server says %s %s", status, description))
	}
}

func (l *lane) failed(err error) error {
	return l.classify("fetching from the queue "+l.queue+", priority "+l.priority, err)
}
