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

// fewConnections are enough for one question at a time, and a second while the first is
// slow.
const fewConnections = 2

// List counts the entries of a list.
type List struct {
	client redis.UniversalClient
	key    string
}

var _ backlog.Source = (*List)(nil)

// NewList connects to the server that has the list. The list need not be there: one that
// is empty is not.
func NewList(ctx context.Context, access broker.Credentials, key string) (backlog.Source, error) {
	client, err := redisclient.Connect(ctx, access, fewConnections)
	if err != nil {
		return nil, err
	}
	return &List{client, key}, nil
}

// Read asks for the list's length.
func (l *List) Read(ctx context.Context) (backlog.Reading, error) {
	length, err := l.client.LLen(ctx, l.key).Result()
	if err != nil {
		return backlog.Reading{}, redisclient.Classify(fmt.Sprintf("asking for the length of the list %q", l.key), err)
	}
	return backlog.Reading{Waiting: length, At: time.Now()}, nil
}

// Disconnect ends the connection.
func (l *List) Disconnect() { _ = l.client.Close() }
