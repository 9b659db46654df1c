// Package rabbitmq reads the backlog of a RabbitMQ queue from the management API.
//
// RabbitMQ collects these statistics every 5 seconds by default, and does not report their age.
package rabbitmq

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
)

// QueueSource reads one queue of a virtual host.
type QueueSource struct {
	*backlog.HTTPClient
	vhost, queue string
}

// NewQueueSource returns a source that connects with the first reading. The URL is that of the management API, without /api.
func NewQueueSource(credentials broker.Credentials, vhost, queue string) (backlog.Source, error) {
	// The management API has these fields in the description of a queue or in an error.
	isField := func(name string, _ json.RawMessage) bool {
		return slices.Contains([]string{"messages_ready", "vhost", "arguments", "reason"}, name)
	}
	client, err := backlog.NewHTTPClient(credentials, backlog.API{MaxResponse: maxResponseBytes, IsField: isField})
	if err != nil {
		return nil, err
	}
	return &QueueSource{client, vhost, queue}, nil
}

// maxResponseBytes is more than the statistics of a queue with many consumers need.
const maxResponseBytes = 1 << 20

// queueResponse has a nil pointer for a statistic that RabbitMQ has not collected yet.
type queueResponse struct {
	Ready          *int64 `json:"messages_ready"`
	Unacknowledged *int64 `json:"messages_unacknowledged"`
	Stats          struct {
		Published *uint64 `json:"publish"`
	} `json:"message_stats"`
}

// Read implements backlog.Source.
func (s *QueueSource) Read(ctx context.Context) (_ backlog.Reading, err error) {
	defer func() {
		err = s.Conceal(broker.ClassifyNetworkError(fmt.Sprintf("reading the queue %q of the virtual host %q", s.queue, s.vhost), err))
	}()
	var response queueResponse
	status, err := s.GetJSON(ctx, "api/queues/"+url.PathEscape(s.vhost)+"/"+url.PathEscape(s.queue), &response)
	switch {
	case err != nil:
		return backlog.Reading{}, err
	case status == http.StatusNotFound:
		return backlog.Reading{}, broker.Errorf(broker.ClassNotFound, "the queue does not exist")
	case status != http.StatusOK:
		return backlog.Reading{}, broker.Errorf(broker.ClassInvalid, "the response is %d %s", status, http.StatusText(status))
	case response.Ready == nil || response.Unacknowledged == nil:
		return backlog.Reading{}, broker.Errorf(broker.ClassUnknown, "RabbitMQ has not counted its messages yet")
	case *response.Ready < 0 || *response.Unacknowledged < 0:
		return backlog.Reading{}, broker.Errorf(broker.ClassInvalid, "the response has a negative number of messages")
	}
	return backlog.Reading{
		Backlog: *response.Ready, InFlight: response.Unacknowledged, TotalArrivals: response.Stats.Published, MeasuredTime: time.Now(),
	}, nil
}
