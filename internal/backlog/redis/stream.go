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

// StreamSource counts what a group of consumers has not finished of a stream.
type StreamSource struct {
	client     redis.UniversalClient
	key, group string
}

var _ backlog.Source = (*StreamSource)(nil)

// NewStreamSource connects to the server that has the stream.
func NewStreamSource(ctx context.Context, access broker.Credentials, key, group string) (backlog.Source, error) {
	client, err := redisclient.NewClient(ctx, access, fewConnections)
	if err != nil {
		return nil, err
	}
	return &StreamSource{client, key, group}, nil
}

// Read asks how far the group has come. What it has not read waits, what it has read and
// not acknowledged is in flight.
func (s *StreamSource) Read(ctx context.Context) (backlog.Reading, error) {
	reading, err := s.read(ctx)
	return reading, redisclient.ClassifyError(fmt.Sprintf("asking for the group %q of the stream %q", s.group, s.key), err)
}

func (s *StreamSource) read(ctx context.Context) (backlog.Reading, error) {
	groups, err := s.client.XInfoGroups(ctx, s.key).Result()
	if err != nil {
		return backlog.Reading{}, err
	}
	for i := range groups {
		if groups[i].Name == s.group {
			return s.readingOf(ctx, &groups[i])
		}
	}
	return backlog.Reading{}, broker.Errorf(broker.ClassNotFound, "the stream has no such group")
}

// readingOf takes the lag that the server tells. It cannot tell it once entries were
// deleted, or the group was set to somewhere in the stream, and no server before 7 does:
// then the entries after the group's last are counted.
func (s *StreamSource) readingOf(ctx context.Context, group *redis.XInfoGroup) (backlog.Reading, error) {
	reading := backlog.Reading{Backlog: group.Lag, InFlight: &group.Pending, MeasuredTime: time.Now()}
	if group.Lag >= 0 && group.EntriesRead > 0 {
		reading.TotalArrivals = new(uint64(group.EntriesRead + group.Lag))
	}
	if group.Lag <= 0 {
		var err error
		reading.Backlog, err = countAfter.Run(ctx, s.client, []string{s.key}, "("+group.LastDeliveredID, mostCounted).Int64()
		if err != nil {
			return backlog.Reading{}, err
		}
	}
	return reading, nil
}

// mostCounted bounds how many entries are counted one by one. More are said to be this
// many: no number of workers depends on it any more.
const mostCounted = 10_000

// countAfter counts entries where they are, as they may be large.
var countAfter = redis.NewScript(`return #redis.call("XRANGE", KEYS[1], ARGV[1], "+", "COUNT", ARGV[2])`)

// Disconnect ends the connection.
func (s *StreamSource) Disconnect() { _ = s.client.Close() }
