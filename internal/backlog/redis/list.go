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

// ListSource counts the entries of a list.
type ListSource struct {
	client redis.UniversalClient
	key    string
}

var _ backlog.Source = (*ListSource)(nil)

// NewListSource connects to the server that has the list. The list need not be there: one that
// is empty is not.
func NewListSource(ctx context.Context, access broker.Credentials, key string) (backlog.Source, error) {
	client, err := redisclient.NewClient(ctx, access, fewConnections)
	if err != nil {
		return nil, err
	}
	return &ListSource{client, key}, nil
}

// Read asks for the list's length.
func (l *ListSource) Read(ctx context.Context) (backlog.Reading, error) {
	length, err := l.client.LLen(ctx, l.key).Result()
	if err != nil {
		return backlog.Reading{}, redisclient.ClassifyError(fmt.Sprintf("asking for the length of the list %q", l.key), err)
	}
	return backlog.Reading{Backlog: length, MeasuredTime: time.Now()}, nil
}

// Disconnect ends the connection.
func (l *ListSource) Disconnect() { _ = l.client.Close() }
