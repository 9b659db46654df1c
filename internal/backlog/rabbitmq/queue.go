// Package rabbitmq reads how much waits in a queue of RabbitMQ, through its management API.
//
// The API's figures are some seconds old: RabbitMQ gathers them every five, and says so of
// none.
package rabbitmq

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// Queue is one queue of a virtual host.
type Queue struct {
	http        *backlog.HTTP
	vhost, name string
}

var _ backlog.Source = (*Queue)(nil)

// NewQueue connects to nothing yet. The URL is that of the management API, without /api.
func NewQueue(access broker.Credentials, vhost, name string) (backlog.Source, error) {
	asking, err := backlog.NewHTTP(access)
	if err != nil {
		return nil, err
	}
	return &Queue{asking, vhost, name}, nil
}

// answer about a queue, as far as it is read. RabbitMQ leaves figures out that it has not
// gathered yet.
type answer struct {
	Ready          *int64 `json:"messages_ready"`
	Unacknowledged *int64 `json:"messages_unacknowledged"`
	Stats          struct {
		Published *uint64 `json:"publish"`
	} `json:"message_stats"`
}

// Read asks for the queue.
func (q *Queue) Read(ctx context.Context) (backlog.Reading, error) {
	reading, err := q.read(ctx)
	return reading, broker.ClassifyNetworkError(fmt.Sprintf("asking for the queue %q of the virtual host %q", q.name, q.vhost), err)
}

func (q *Queue) read(ctx context.Context) (backlog.Reading, error) {
	var a answer
	path := "/api/queues/" + url.PathEscape(q.vhost) + "/" + url.PathEscape(q.name)
	status, err := q.http.Get(ctx, path, nil, &a)
	switch {
	case err != nil:
		return backlog.Reading{}, err
	case status == http.StatusNotFound:
		return backlog.Reading{}, broker.Errorf(broker.ClassNotFound, "there is none")
	case status != http.StatusOK:
		return backlog.Reading{}, broker.Errorf(broker.ClassInvalid, "the answer is %d %s", status, http.StatusText(status))
	case a.Ready == nil || a.Unacknowledged == nil:
		return backlog.Reading{}, broker.Errorf(broker.ClassUnknown, "RabbitMQ has not counted its messages yet")
	case *a.Ready < 0 || *a.Unacknowledged < 0:
		return backlog.Reading{}, broker.Errorf(broker.ClassInvalid, "the answer has counts below 0")
	}
	return backlog.Reading{Waiting: *a.Ready, InFlight: a.Unacknowledged, Arrivals: a.Stats.Published, At: time.Now()}, nil
}

// Disconnect ends the connections.
func (q *Queue) Disconnect() { q.http.Disconnect() }
