package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// connectionPoolSize allows a second request while one is slow.
const connectionPoolSize = 2

// ListSource reads the length of a list.
type ListSource struct {
	client redis.UniversalClient
	key    string
}

var _ backlog.Source = (*ListSource)(nil)

// NewListSource connects to the server. Redis does not distinguish a missing list from an
// empty one.
func NewListSource(ctx context.Context, credentials broker.Credentials, key string) (backlog.Source, error) {
	client, err := redisclient.NewClient(ctx, credentials, connectionPoolSize)
	if err != nil {
		return nil, err
	}
	return &ListSource{client, key}, nil
}

// Read implements backlog.Source.
func (l *ListSource) Read(ctx context.Context) (backlog.Reading, error) {
	length, err := l.client.LLen(ctx, l.key).Result()
	if err != nil {
		return backlog.Reading{}, redisclient.ClassifyError(fmt.Sprintf("reading the length of the list %q", l.key), err)
	}
	return backlog.Reading{Backlog: length, MeasuredTime: time.Now()}, nil
}

// Disconnect closes the connection.
func (l *ListSource) Disconnect() { _ = l.client.Close() }
